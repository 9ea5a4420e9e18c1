#include "heddle/run/data/dataset.h"

#include <algorithm>
#include <cmath>

#include "heddle/core/base/hash.h"
#include "heddle/core/base/text.h"
#include "heddle/run/data/byte_tokenizer.h"
#include "heddle/run/data/documents.h"
#include "heddle/run/data/mixture.h"
#include "heddle/run/data/permutation.h"
#include "heddle/run/data/source.h"
#include "heddle/run/data/synthetic.h"

namespace heddle::run {
namespace {

// A range of a token stream, split into consecutive sequences. The label of the last token of a
// sequence is the first token of the next.
struct Part {
  const TokenStream* stream = nullptr;
  int64_t begin = 0;
  int64_t tokens = 0;
  int64_t sequences = 0;
};

class PackedDataset final : public Dataset {
 public:
  PackedDataset(const DatasetOptions& options, TokenSource source)
      : options_(options), source_(std::move(source)) {}

  // Divides the tokens into training and held-out parts.
  Status Divide();

  Status Read(DataSplit split, int64_t step, int64_t first_row, int64_t rows,
              std::span<int64_t> tokens, std::span<int64_t> labels) const override;
  Result<std::optional<int64_t>> CheckTokens(const TokenCheck& check) const override;
  std::string Describe(int64_t steps) const override;
  std::string Fingerprint() const override { return fingerprint_; }
  bool Has(DataSplit split) const override {
    return (split == DataSplit::kTrain ? train_ : held_out_).sequences > 0;
  }
  bool IsText() const override { return source_.is_text; }

 private:
  Part MakePart(const TokenStream& stream, int64_t begin, int64_t end) const {
    int64_t tokens = end - begin;
    return {&stream, begin, tokens, std::max<int64_t>(tokens - 1, 0) / options_.seq_len};
  }
  std::string MakeFingerprint() const;
  Status CheckLong(const Part& part, std::string_view what) const;
  // The parts that the run reads: the held-out part only if the run validates.
  std::vector<Part> UsedParts() const;
  Status CheckSteps(const TokenCheck& check) const;
  // Returns the sequence that a row of a step reads.
  int64_t SequenceAt(DataSplit split, int64_t step, int64_t row) const;

  DatasetOptions options_;
  TokenSource source_;
  Part train_;
  Part held_out_;
  // Computed when opening: files may be truncated later.
  std::string fingerprint_;
};

Status PackedDataset::CheckLong(const Part& part, std::string_view what) const {
  if (part.sequences > 0) return Done{};
  return Error(Diag::kData, "`{}` has {} {}, but a sequence needs {} with its last label",
               options_.source, Counted(part.tokens, "token"), what, options_.seq_len + 1);
}

Status PackedDataset::Divide() {
  int64_t size = source_.train.size();
  if (size == 0 && source_.held_out.size() > 0)
    return Error(Diag::kData,
                 "`{}` has only files for validation (their names have the word val, valid, "
                 "validation or test); add files to train on, or name one file instead",
                 options_.source);
  if (size == 0)
    return Error(Diag::kData, "`{}` is empty{}", options_.source,
                 source_.skipped > 0
                     ? fmt::format(": none of its files is text, {} skipped", source_.skipped)
                     : "");
  int64_t kept = 0;
  if (source_.held_out.size() > 0) {
    held_out_ = MakePart(source_.held_out, 0, source_.held_out.size());
  } else if (options_.held_out > 0) {
    // Holds out at least one sequence.
    kept = std::max(static_cast<int64_t>(static_cast<double>(size) * options_.held_out),
                    options_.seq_len + 1);
    held_out_ = MakePart(source_.train, std::max<int64_t>(size - kept, 0), size);
  }
  train_ = MakePart(source_.train, 0, std::max<int64_t>(size - kept, 0));
  HEDDLE_RETURN_IF_ERROR(CheckLong(train_, kept > 0 ? "to train on" : "to read"));
  if (held_out_.stream != nullptr) HEDDLE_RETURN_IF_ERROR(CheckLong(held_out_, "for validation"));
  fingerprint_ = MakeFingerprint();
  return Done{};
}

int64_t PackedDataset::SequenceAt(DataSplit split, int64_t step, int64_t row) const {
  const Part& part = split == DataSplit::kTrain ? train_ : held_out_;
  auto count = static_cast<uint64_t>(part.sequences);
  // 128 bits: users can choose any number of steps.
  auto at = static_cast<unsigned __int128>(step - 1) *
                static_cast<unsigned __int128>(options_.global_batch) +
            static_cast<unsigned __int128>(row);
  auto epoch = static_cast<uint64_t>(at / count);
  auto index = static_cast<uint64_t>(at % count);
  if (split == DataSplit::kTrain && options_.shuffle)
    index = Permutation(count, MixHash(Scramble(options_.seed), epoch))(index);
  return static_cast<int64_t>(index);
}

Status PackedDataset::Read(DataSplit split, int64_t step, int64_t first_row, int64_t rows,
                           std::span<int64_t> tokens, std::span<int64_t> labels) const {
  const Part& part = split == DataSplit::kTrain ? train_ : held_out_;
  HEDDLE_CHECK(Has(split), "no tokens are held out");
  HEDDLE_CHECK(step >= 1, "steps count from 1");
  HEDDLE_CHECK(first_row >= 0, "rows count from 0");
  auto length = static_cast<size_t>(options_.seq_len);
  HEDDLE_CHECK(tokens.size() == static_cast<size_t>(rows) * length, "wrong size of `tokens`");
  HEDDLE_CHECK(labels.size() == tokens.size(), "wrong size of `labels`");
  std::vector<int64_t> row(length + 1);
  for (int64_t r = 0; r < rows; ++r) {
    int64_t begin = part.begin + SequenceAt(split, step, first_row + r) * options_.seq_len;
    HEDDLE_RETURN_IF_ERROR(part.stream->Read(begin, row, options_.vocab));
    auto row_labels = labels.subspan(static_cast<size_t>(r) * length, length);
    std::copy_n(row.begin(), length, tokens.begin() + r * options_.seq_len);
    std::copy_n(row.begin() + 1, length, row_labels.begin());
    HEDDLE_RETURN_IF_ERROR(part.stream->IgnoreMasked(begin + 1, row_labels));
    if (options_.document_boundaries) part.stream->IgnoreCrossings(begin, row, row_labels);
  }
  return Done{};
}

std::vector<Part> PackedDataset::UsedParts() const {
  std::vector<Part> parts = {train_};
  if (options_.held_out > 0 && held_out_.sequences > 0) parts.push_back(held_out_);
  return parts;
}

// Checks the rows that the steps of the run read.
Status PackedDataset::CheckSteps(const TokenCheck& check) const {
  auto row = static_cast<size_t>(options_.seq_len);
  std::vector<int64_t> tokens(row);
  std::vector<int64_t> labels(row);
  for (int64_t step = check.first_step + check.part; step <= check.last_step; step += check.parts) {
    for (int64_t r = 0; r < options_.global_batch; ++r)
      HEDDLE_RETURN_IF_ERROR(Read(DataSplit::kTrain, step, r, 1, tokens, labels));
  }
  return Done{};
}

Result<std::optional<int64_t>> PackedDataset::CheckTokens(const TokenCheck& check) const {
  // Bytes are always in the vocabulary: Open checks its size.
  if (source_.is_text) return std::optional<int64_t>(kByteVocab - 1);
  // Computed in double, because the number of rows can overflow an integer.
  auto steps = static_cast<double>(std::max<int64_t>(check.last_step - check.first_step + 1, 0));
  bool few =
      steps * static_cast<double>(options_.global_batch) < static_cast<double>(train_.sequences);
  int64_t largest = 0;
  bool all = true;
  for (const Part& part : UsedParts()) {
    bool trained = part.stream == train_.stream && part.begin == train_.begin;
    int64_t count = part.sequences * options_.seq_len + 1;
    if (trained && few && part.stream->BytesOf(part.begin, count) > check.most_bytes) {
      HEDDLE_RETURN_IF_ERROR(CheckSteps(check));
      all = false;
      continue;
    }
    int64_t begin = count / check.parts * check.part + std::min(check.part, count % check.parts);
    int64_t own = count / check.parts + (check.part < count % check.parts ? 1 : 0);
    HEDDLE_TRY(int64_t found,
               part.stream->Largest(part.begin + begin, own, options_.vocab, check.progress));
    largest = std::max(largest, found);
  }
  return all ? std::optional(largest) : std::nullopt;
}

std::string PackedDataset::Describe(int64_t steps) const {
  std::string out = fmt::format("{}: {} tokens, {} sequence{} of {}", source_.kind,
                                WithCommas(train_.tokens), WithCommas(train_.sequences),
                                train_.sequences == 1 ? "" : "s", WithCommas(options_.seq_len));
  if (held_out_.sequences > 0) out += fmt::format(", {} held out", WithCommas(held_out_.sequences));
  if (source_.has_mask()) out += ", with a loss mask";
  if (steps > 0)
    out += fmt::format(", {:.3g} epochs", static_cast<double>(steps) *
                                              static_cast<double>(options_.global_batch) /
                                              static_cast<double>(train_.sequences));
  if (source_.skipped > 0)
    out += fmt::format(
        "; {} not text (skipped)",
        source_.skipped == 1 ? "1 file is" : fmt::format("{} files are", source_.skipped));
  return out;
}

std::string PackedDataset::MakeFingerprint() const {
  // The documents' ends follow from the files, unless the user specifies them.
  std::string boundaries = !options_.document_boundaries ? "no"
                           : options_.document_end       ? fmt::format("{}", *options_.document_end)
                                                         : "yes";
  return fmt::format(
      "tokens={}+{} hash={:016x}{:016x} seq_len={} global_batch={} seed={} shuffle={} "
      "boundaries={}{}{}",
      train_.tokens, held_out_.tokens, source_.train.Hash(), source_.held_out.Hash(),
      options_.seq_len, options_.global_batch, options_.shuffle ? options_.seed : 0,
      options_.shuffle ? "yes" : "no", boundaries,
      source_.tokenizer.empty() ? "" : " tokenizer=", source_.tokenizer);
}

Status CheckOptions(const DatasetOptions& options) {
  auto positive = [](std::string_view what, int64_t value) -> Status {
    if (value > 0) return Done{};
    return Error(Diag::kData, "{} is {}, expected 1 or more", what, value);
  };
  HEDDLE_RETURN_IF_ERROR(positive("the vocabulary", options.vocab));
  HEDDLE_RETURN_IF_ERROR(positive("the length of sequences", options.seq_len));
  HEDDLE_RETURN_IF_ERROR(positive("the global batch", options.global_batch));
  if (std::isnan(options.held_out) || options.held_out < 0 || options.held_out >= 1)
    return Error(Diag::kData,
                 "the share of held-out tokens is {}, expected at least 0 and less than 1",
                 options.held_out);
  return Done{};
}

// Sets the token that ends documents. Fails if a stream has no document boundaries.
Status SetDocumentEnds(const DatasetOptions& options, TokenSource& source) {
  if (!options.document_boundaries) return Done{};
  for (TokenStream* stream : {&source.train, &source.held_out}) {
    for (TokenSegment& segment : stream->segments()) {
      if (options.document_end) {
        segment.document_end = options.document_end;
        segment.document_last = nullptr;
      }
      if (!segment.knows_documents())
        return Error(
            Diag::kData,
            "`{}` does not state which token ends a document; give it with --training.document_end",
            segment.name);
    }
  }
  return Done{};
}

Result<TokenSource> OpenAsTokens(const DatasetOptions& options) {
  HEDDLE_TRY(std::shared_ptr<const Tokenizer> tokenizer, Tokenizer::Open(options.tokenizer));
  HEDDLE_RETURN_IF_ERROR(tokenizer->CheckFits(options.vocab));
  return OpenEncodedText(options.source, *tokenizer);
}

}  // namespace

Result<std::unique_ptr<Dataset>> Dataset::Open(const DatasetOptions& options) {
  HEDDLE_RETURN_IF_ERROR(CheckOptions(options));
  HEDDLE_TRY(std::vector<WeightedSource> sources, ParseSources(options.source));
  if (sources.size() > 1) return OpenMixture(options, sources);
  if (sources.size() == 1) {
    DatasetOptions alone = options;
    alone.source = sources[0].path;
    return Open(alone);
  }
  bool encodes = !options.tokenizer.empty();
  if (options.source == "synthetic" && !encodes) return MakeSyntheticDataset(options);
  HEDDLE_TRY(TokenSource source, encodes ? OpenAsTokens(options) : OpenSource(options.source));
  if (source.is_text && options.vocab < kByteVocab)
    return Error(Diag::kData, "the vocabulary has {} tokens, but text needs {}, one for each byte",
                 options.vocab, kByteVocab);
  HEDDLE_RETURN_IF_ERROR(SetDocumentEnds(options, source));
  auto dataset = std::make_unique<PackedDataset>(options, std::move(source));
  HEDDLE_RETURN_IF_ERROR(dataset->Divide());
  return std::unique_ptr<Dataset>(std::move(dataset));
}

Result<bool> HasLossMask(const std::string& source, const std::string& tokenizer) {
  HEDDLE_TRY(std::vector<WeightedSource> sources, ParseSources(source));
  for (const WeightedSource& one : sources) {
    HEDDLE_TRY(bool has_mask, HasLossMask(one.path, tokenizer));
    if (has_mask) return true;
  }
  if (!sources.empty() || source == "synthetic" || source == "text") return false;
  if (!tokenizer.empty()) {
    HEDDLE_TRY(DocumentFiles documents, ListDocuments({source}));
    return documents.has_pairs;
  }
  HEDDLE_TRY(TokenSource opened, OpenSource(source));
  return opened.has_mask();
}

}  // namespace heddle::run
