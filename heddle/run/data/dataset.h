// Tokens to train on: rows of the global batch of a step.
//
// What a row holds depends on the options, the step and the number of the row, and on nothing else: not on the mesh, not on what was
// read before. A run that goes on from a step reads what the undisturbed one would have read.
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

struct DatasetOptions {
  // `synthetic`, `text` (the project's own sources and docs), or the path of a file or folder: docs/data.md.
  std::string source = "synthetic";
  int64_t vocab = 0;
  int64_t seq_len = 0;
  // Rows of one step, over all ranks and micro-batches.
  int64_t global_batch = 0;
  uint64_t seed = 0;
  // Sequences of an epoch come in an order drawn from the seed, another one in every epoch; else as they stand.
  bool shuffle = true;
  // What follows the end of a document is no label.
  bool document_boundaries = false;
  // The token that ends a document, where the files do not say.
  std::optional<int64_t> document_end = {};
  // Share of the tokens that are kept for validation: the last ones.
  double held_out = 0;
};

// Which tokens are compared with the vocabulary before training. Processes divide the work: this
// one checks part `part` of `parts`.
struct TokenCheck {
  int64_t part = 0;
  int64_t parts = 1;
  // The steps that the run trains.
  int64_t first_step = 1;
  int64_t last_step = 1;
  // If the data has more bytes than this, only the rows of these steps are checked.
  int64_t most_bytes = int64_t{16} << 30;
  // Called every few seconds with a line about the progress.
  std::function<void(const std::string&)> progress = {};
};

class Dataset {
 public:
  static Result<std::unique_ptr<Dataset>> Open(const DatasetOptions& options);
  virtual ~Dataset() = default;

  // Rows `first_row` and up of step `step`, which counts from 1; row after row, `seq_len` of each. A label is the token behind
  // its own, or kIgnoredLabel. Reading held-out rows beyond the last begins anew. Threads may read at once.
  virtual Status Read(DataSplit split, int64_t step, int64_t first_row, int64_t rows,
                      std::span<int64_t> tokens, std::span<int64_t> labels) const = 0;

  // Fails for a token that is not in the vocabulary, with its file and byte. Returns the largest
  // token if all data were checked. Reads every byte once; docs/data.md states the cost.
  virtual Result<std::optional<int64_t>> CheckTokens(const TokenCheck& check) const = 0;

  // For people, one line: what it is, how much there is.
  virtual std::string Describe() const = 0;
  // Everything that decides what is read, one line. Equal lines, equal tokens: a run that resumes with another one reads other
  // data.
  virtual std::string Fingerprint() const = 0;
  // Whether there are rows of it.
  virtual bool Has(DataSplit split) const = 0;
  // Whether tokens are bytes of text: byte_tokenizer.h turns them back.
  virtual bool IsText() const = 0;
};

}  // namespace heddle::run
