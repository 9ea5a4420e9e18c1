#include "heddle/run/data/tokenize.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace heddle::run {
namespace {

// Appends the tokens of a prompt and its completion. Returns the number of tokens of the prompt:
// the first tokens that it has without the completion, too. A token with characters of both belongs
// to the completion.
Result<size_t> EncodePair(const Document& pair, TextEncoder& encoder, std::vector<int32_t>& out) {
  std::vector<int32_t> prompt;
  HEDDLE_RETURN_IF_ERROR(encoder.Encode(pair.text.substr(0, *pair.prompt), prompt, false));
  // A chat template may have put the first tokens of texts, such as `<s>`, into the prompt.
  std::span<const int32_t> first = encoder.before();
  bool has_first =
      !first.empty() &&
      std::ranges::equal(std::span(prompt).first(std::min(first.size(), prompt.size())), first);
  size_t begin = out.size() + (has_first ? 0 : first.size());
  HEDDLE_RETURN_IF_ERROR(encoder.Encode(pair.text, out, !has_first));
  auto same = std::ranges::mismatch(prompt, std::span(out).subspan(begin)).in1 - prompt.begin();
  return begin + static_cast<size_t>(same);
}

Status EncodeDocument(const Document& document, TextEncoder& encoder,
                      const TokenizeOptions& options, bool masked, DocumentTokens& out) {
  size_t before = out.tokens.size();
  size_t counted = before;
  if (document.prompt) {
    HEDDLE_TRY(counted, EncodePair(document, encoder, out.tokens));
  } else {
    HEDDLE_RETURN_IF_ERROR(encoder.Encode(document.text, out.tokens));
  }
  bool ended = out.tokens.size() > before && options.document_end == out.tokens.back();
  if (options.document_end && !ended) out.tokens.push_back(*options.document_end);
  size_t length = out.tokens.size() - before;
  if (length > INT32_MAX)
    return Error(Diag::kData, "a document has {} tokens, expected at most {}", length, INT32_MAX);
  out.lengths.push_back(static_cast<uint32_t>(length));
  if (!masked) return Done{};
  out.mask.resize(counted, 0);
  out.mask.resize(out.tokens.size(), 1);
  return Done{};
}

// Hands parts to threads, and their results to the writer in order.
class TokenizeQueue {
 public:
  TokenizeQueue(const Tokenizer& tokenizer, const DocumentFiles& documents,
                const TokenizeOptions& options)
      : tokenizer_(tokenizer),
        parts_(documents.parts),
        masked_(documents.has_pairs),
        options_(options),
        // Threads run ahead of the writer by this many parts.
        results_(static_cast<size_t>(4 * options.threads)) {}

  // Runs in each thread.
  void Work() {
    TextEncoder encoder(tokenizer_);
    while (std::optional<size_t> part = Next()) {
      Result<DocumentTokens> tokens = Encode(parts_[*part], encoder);
      std::lock_guard lock(mutex_);
      results_[*part % results_.size()] = std::move(tokens);
      changed_.notify_all();
    }
  }

  Status WriteAll(const std::function<Status(const DocumentTokens&)>& write) {
    Status status = Done{};
    int64_t bytes = 0;
    for (size_t i = 0; i < parts_.size() && status.ok(); ++i) {
      std::optional<Result<DocumentTokens>> tokens = Take(i);
      status = tokens->ok() ? write(**tokens) : Status(std::move(*tokens).failure());
      bytes += static_cast<int64_t>(parts_[i].end - parts_[i].begin);
      if (options_.progress) options_.progress(bytes);
    }
    std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
    return status;
  }

 private:
  // The next part to encode; nullopt at the end.
  std::optional<size_t> Next() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return stopped_ || next_ == parts_.size() || next_ < written_ + results_.size();
    });
    if (stopped_ || next_ == parts_.size()) return std::nullopt;
    return next_++;
  }

  std::optional<Result<DocumentTokens>> Take(size_t part) {
    std::unique_lock lock(mutex_);
    std::optional<Result<DocumentTokens>>& slot = results_[part % results_.size()];
    changed_.wait(lock, [&] { return slot.has_value(); });
    std::optional<Result<DocumentTokens>> result = std::move(slot);
    slot.reset();
    ++written_;
    changed_.notify_all();
    return result;
  }

  Result<DocumentTokens> Encode(const DocumentPart& part, TextEncoder& encoder) const {
    DocumentTokens out;
    // Three bytes a token are more than enough for most texts.
    out.tokens.reserve((part.end - part.begin) / 3);
    HEDDLE_RETURN_IF_ERROR(ForEachDocument(part, options_.keys, [&](const Document& document) {
      return EncodeDocument(document, encoder, options_, masked_, out);
    }));
    return out;
  }

  const Tokenizer& tokenizer_;
  const std::vector<DocumentPart>& parts_;
  const bool masked_;
  const TokenizeOptions& options_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // The next part to encode, and the number of parts that were taken for writing.
  size_t next_ = 0;
  size_t written_ = 0;
  bool stopped_ = false;
  // A ring: the result of a part is at its number modulo the size.
  std::vector<std::optional<Result<DocumentTokens>>> results_;
};

}  // namespace

Status TokenizeDocuments(const Tokenizer& tokenizer, const DocumentFiles& documents,
                         const TokenizeOptions& options,
                         const std::function<Status(const DocumentTokens&)>& write) {
  TokenizeQueue queue(tokenizer, documents, options);
  std::vector<std::thread> threads;
  auto count = std::min(static_cast<size_t>(options.threads), documents.parts.size());
  for (size_t i = 0; i < count; ++i) threads.emplace_back([&] { queue.Work(); });
  Status status = queue.WriteAll(write);
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace heddle::run
