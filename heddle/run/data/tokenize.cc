#include "heddle/run/data/tokenize.h"

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

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
  TokenizeQueue(const Tokenizer& tokenizer, const DocumentSource& documents, bool masked,
                const TokenizeOptions& options)
      : tokenizer_(tokenizer),
        documents_(documents),
        masked_(masked),
        options_(options),
        // Threads run ahead of the writer by this many parts.
        results_(static_cast<size_t>(4 * options.threads)) {}

  // Runs in each thread.
  void Work() {
    TextEncoder encoder(tokenizer_);
    while (std::optional<Part> part = Next())
      Put(part->number, part->documents.size(), Encode(part->documents, encoder));
  }

  Status WriteAll(const WriteTokens& write) {
    Status status = Done{};
    size_t bytes = 0;
    while (status.ok()) {
      std::optional<Encoded> part = Take();
      if (!part) return Done{};
      status = part->tokens.ok() ? write(*part->tokens) : Status(std::move(part->tokens).failure());
      bytes += part->bytes;
      if (options_.progress) options_.progress(static_cast<int64_t>(bytes));
    }
    std::lock_guard lock(mutex_);
    stopped_ = true;
    changed_.notify_all();
    return status;
  }

 private:
  struct Part {
    size_t number = 0;
    DocumentPart documents;
  };
  struct Encoded {
    size_t bytes = 0;
    Result<DocumentTokens> tokens;
  };

  // The next part to encode; nullopt at the end.
  std::optional<Part> Next() {
    // One thread at a time reads, without keeping the others from their results.
    std::lock_guard reading(reading_);
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stopped_ || ended_ || next_ < written_ + results_.size(); });
      if (stopped_ || ended_) return std::nullopt;
    }
    Result<std::optional<DocumentPart>> part = documents_();
    std::lock_guard lock(mutex_);
    if (part.ok() && *part) return Part{next_++, **std::move(part)};
    if (!part.ok())
      results_[next_++ % results_.size()].emplace(Encoded{0, std::move(part).failure()});
    ended_ = true;
    changed_.notify_all();
    return std::nullopt;
  }

  void Put(size_t number, size_t bytes, Result<DocumentTokens> tokens) {
    std::lock_guard lock(mutex_);
    results_[number % results_.size()].emplace(Encoded{bytes, std::move(tokens)});
    changed_.notify_all();
  }

  // The next part to write; nullopt at the end.
  std::optional<Encoded> Take() {
    std::unique_lock lock(mutex_);
    std::optional<Encoded>& slot = results_[written_ % results_.size()];
    changed_.wait(lock, [&] { return slot.has_value() || (ended_ && written_ == next_); });
    std::optional<Encoded> result = std::exchange(slot, std::nullopt);
    if (!result) return std::nullopt;
    ++written_;
    changed_.notify_all();
    return result;
  }

  Result<DocumentTokens> Encode(const DocumentPart& part, TextEncoder& encoder) const {
    DocumentTokens out;
    // Three bytes a token are more than enough for most texts.
    out.tokens.reserve(part.size() / 3);
    HEDDLE_RETURN_IF_ERROR(ForEachDocument(part, options_.keys, [&](const Document& document) {
      return EncodeDocument(document, encoder, options_, masked_, out);
    }));
    return out;
  }

  const Tokenizer& tokenizer_;
  const DocumentSource& documents_;
  const bool masked_;
  const TokenizeOptions& options_;
  // Guards `documents_`. Taken before `mutex_`.
  std::mutex reading_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // The number of parts read, and of parts taken for writing.
  size_t next_ = 0;
  size_t written_ = 0;
  bool ended_ = false;
  bool stopped_ = false;
  // A ring: the result of a part is at its number modulo the size.
  std::vector<std::optional<Encoded>> results_;
};

Status RunQueue(const Tokenizer& tokenizer, const DocumentSource& documents, bool masked,
                const TokenizeOptions& options, const WriteTokens& write) {
  TokenizeQueue queue(tokenizer, documents, masked, options);
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < options.threads; ++i) threads.emplace_back([&] { queue.Work(); });
  Status status = queue.WriteAll(write);
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace

Status TokenizeDocuments(const Tokenizer& tokenizer, const DocumentSource& documents,
                         const TokenizeOptions& options, const WriteTokens& write) {
  return RunQueue(tokenizer, documents, /*masked=*/false, options, write);
}

Status TokenizeDocuments(const Tokenizer& tokenizer, const DocumentFiles& documents,
                         const TokenizeOptions& options, const WriteTokens& write) {
  TokenizeOptions few = options;
  few.threads = std::min(options.threads, static_cast<int64_t>(documents.parts.size()));
  if (few.threads == 0) return Done{};
  return RunQueue(tokenizer, PartsOf(documents), documents.has_pairs, few, write);
}

}  // namespace heddle::run
