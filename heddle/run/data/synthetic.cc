#include "heddle/run/data/synthetic.h"

#include "heddle/core/base/hash.h"
#include "heddle/core/base/text.h"

namespace heddle::run {
namespace {

// A token ends a document if its number is divisible by this.
constexpr int64_t kSyntheticDocument = 32;

class SyntheticDataset final : public Dataset {
 public:
  explicit SyntheticDataset(const DatasetOptions& options) : options_(options) {}

  Status Read(DataSplit split, int64_t step, int64_t first_row, int64_t rows,
              std::span<int64_t> tokens, std::span<int64_t> labels) const override {
    HEDDLE_CHECK(static_cast<int64_t>(tokens.size()) == rows * options_.seq_len,
                 "wrong size of `tokens`");
    HEDDLE_CHECK(labels.size() == tokens.size(), "wrong size of `labels`");
    // Inverting and scrambling the seed makes the held-out rows independent for every choice of
    // seeds.
    uint64_t seed = split == DataSplit::kTrain ? options_.seed : Scramble(~options_.seed);
    SyntheticRows({options_.vocab, options_.seq_len, seed, step}, first_row, tokens, labels);
    for (size_t i = 0; options_.document_boundaries && i < tokens.size(); ++i) {
      if (EndsDocument(tokens[i])) labels[i] = kDocumentEndLabel;
    }
    return Done{};
  }
  Result<std::optional<int64_t>> CheckTokens(const TokenCheck&) const override {
    return std::optional(options_.vocab - 1);
  }
  std::string Describe(int64_t) const override {
    return fmt::format("synthetic tokens, vocabulary {}", WithCommas(options_.vocab));
  }
  std::string Fingerprint() const override {
    return fmt::format("synthetic vocab={} seed={} seq_len={} global_batch={}{}", options_.vocab,
                       options_.seed, options_.seq_len, options_.global_batch,
                       !options_.document_boundaries ? ""
                       : options_.document_end
                           ? fmt::format(" boundaries={}", *options_.document_end)
                           : " boundaries=yes");
  }
  bool Has(DataSplit) const override { return true; }
  bool IsText() const override { return false; }

 private:
  bool EndsDocument(int64_t token) const {
    return options_.document_end ? token == *options_.document_end
                                 : token % kSyntheticDocument == 0;
  }

  DatasetOptions options_;
};

}  // namespace

void SyntheticRows(const SyntheticStep& step, int64_t first_row, std::span<int64_t> tokens,
                   std::span<int64_t> labels) {
  auto seq_len = static_cast<size_t>(step.seq_len);
  uint64_t base = (step.seed << 40) + (static_cast<uint64_t>(step.step) << 32);
  auto vocab = static_cast<uint64_t>(step.vocab);
  for (size_t at = 0; at < tokens.size(); at += seq_len) {
    uint64_t row = base + ((static_cast<uint64_t>(first_row) + at / seq_len) << 16);
    for (size_t p = 0; p <= seq_len; ++p) {
      auto token = static_cast<int64_t>(Scramble(row + p) % vocab);
      if (p < seq_len) tokens[at + p] = token;
      if (p > 0) labels[at + p - 1] = token;
    }
  }
}

std::unique_ptr<Dataset> MakeSyntheticDataset(const DatasetOptions& options) {
  return std::make_unique<SyntheticDataset>(options);
}

}  // namespace heddle::run
