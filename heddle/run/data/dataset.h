// Dataset: the training data, as rows of the global batch of each step.
//
// A row depends only on the options, the step and the number of the row. It does not depend on the
// mesh or on earlier reads. So a resumed run reads the same rows as an uninterrupted one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "heddle/core/base/result.h"

namespace heddle::run {

enum class DataSplit { kTrain, kHeldOut };

// A label that does not count towards the loss.
constexpr int64_t kIgnoredLabel = -100;
// The same, for a token that ends its document. Only Dataset::Read returns it.
constexpr int64_t kDocumentEndLabel = -101;

struct DatasetOptions {
  // `synthetic`, `text` (the project's own sources and docs), the path of a file or folder, or
  // several with weights: see docs/data.md.
  std::string source = "synthetic";
  // Path of a tokenizer: a text becomes its tokens instead of bytes. Empty: none.
  std::string tokenizer = {};
  int64_t vocab = 0;
  int64_t seq_len = 0;
  // Rows of one step, over all ranks and micro-batches.
  int64_t global_batch = 0;
  uint64_t seed = 0;
  // Shuffles the sequences of each epoch with the seed; otherwise they keep their order.
  bool shuffle = true;
  // The label of a token that ends a document is kDocumentEndLabel.
  bool document_boundaries = false;
  // The token that ends a document, for files that do not specify it.
  std::optional<int64_t> document_end = {};
  // Share of the tokens that is kept for validation, from the end of the data.
  double held_out = 0;
};

// Selects the tokens to compare with the vocabulary before training. Processes divide the work:
// this one checks part `part` of `parts`.
struct TokenCheck {
  int64_t part = 0;
  int64_t parts = 1;
  // First and last step that the run trains.
  int64_t first_step = 1;
  int64_t last_step = 1;
  // If the data has more bytes, only the rows of these steps are checked.
  int64_t most_bytes = int64_t{16} << 30;
  // Called every few seconds with a progress line.
  std::function<void(const std::string&)> progress = {};
};

class Dataset {
 public:
  static Result<std::unique_ptr<Dataset>> Open(const DatasetOptions& options);
  virtual ~Dataset() = default;

  // Reads rows from `first_row` on of step `step`, which counts from 1. Each row has `seq_len`
  // tokens and labels; the sizes of `tokens` and `labels` determine the number of rows. A label is
  // the next token, kIgnoredLabel or kDocumentEndLabel. Held-out rows start over after the last
  // one. Thread-safe.
  virtual Status Read(DataSplit split, int64_t step, int64_t first_row, int64_t rows,
                      std::span<int64_t> tokens, std::span<int64_t> labels) const = 0;

  // Fails for a token outside the vocabulary and for a damaged loss mask, and names file and byte.
  // Returns the largest token, or nullopt if only a part of the data was checked. Reads every byte
  // once; docs/data.md states the cost.
  virtual Result<std::optional<int64_t>> CheckTokens(const TokenCheck& check) const = 0;

  // Returns a line for people: the kind and the amount of data, and the epochs that `steps` steps
  // make of it (0: unknown). A mixture has another line for each source.
  virtual std::string Describe(int64_t steps = 0) const = 0;
  // Returns one line that identifies the data and its order: equal lines mean equal tokens. A run
  // that resumes with another line reads other data.
  virtual std::string Fingerprint() const = 0;
  // Whether there are rows of this split.
  virtual bool Has(DataSplit split) const = 0;
  // Whether tokens are bytes of text; see byte_tokenizer.h.
  virtual bool IsText() const = 0;
};

// Whether the data of a `source` and a `tokenizer` (DatasetOptions) states for each token whether
// it counts towards the loss. Then a batch may have no label that counts.
Result<bool> HasLossMask(const std::string& source, const std::string& tokenizer);

}  // namespace heddle::run
