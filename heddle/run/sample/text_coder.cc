#include "heddle/run/sample/text_coder.h"

#include <algorithm>
#include <charconv>

#include <fmt/ranges.h>

#include "heddle/core/base/text.h"
#include "heddle/run/data/byte_tokenizer.h"
#include "heddle/run/data/files_below.h"

namespace heddle::run {

std::string FindTokenizer(const std::string& given, const std::string& weights) {
  if (!given.empty() || weights.empty()) return given;
  return IsFile(fmt::format("{}/{}", weights, kTokenizerFile)) ? weights : "";
}

Result<TextCoder> TextCoder::Open(bool bytes, const std::string& tokenizer, int64_t vocab) {
  TextCoder coder;
  coder.bytes_ = bytes;
  coder.vocab_ = vocab;
  if (bytes || tokenizer.empty()) return coder;
  HEDDLE_TRY(coder.tokenizer_, Tokenizer::Open(tokenizer));
  HEDDLE_RETURN_IF_ERROR(coder.tokenizer_->CheckFits(vocab));
  return coder;
}

std::optional<int64_t> TextCoder::end() const {
  if (bytes_) return kByteDocumentEnd;
  if (tokenizer_ != nullptr && tokenizer_->document_end()) return *tokenizer_->document_end();
  return std::nullopt;
}

Result<std::vector<int64_t>> TextCoder::Encode(std::string_view flag,
                                               const std::string& prompt) const {
  std::vector<int64_t> tokens;
  if (bytes_) {
    tokens = BytesToTokens(prompt);
  } else if (tokenizer_ != nullptr) {
    std::vector<int32_t> encoded;
    HEDDLE_RETURN_IF_ERROR(TextEncoder(*tokenizer_).Encode(prompt, encoded));
    tokens.assign(encoded.begin(), encoded.end());
  } else {
    for (std::string_view word : Split(prompt, ',')) {
      word = Trim(word);
      if (word.empty()) continue;
      int64_t token = 0;
      auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), token);
      if (error != std::errc() || end != word.data() + word.size())
        return Error(Diag::kUsage,
                     "{} has `{}`; expected token numbers; --tokenizer names a tokenizer for text",
                     flag, word);
      tokens.push_back(token);
    }
  }
  if (tokens.empty()) return Error(Diag::kUsage, "{} is empty", flag);
  for (int64_t token : tokens) {
    if (token < 0 || token >= vocab_)
      return Error(Diag::kUsage, "{} has token {}, but the vocabulary has {}", flag, token, vocab_);
  }
  return tokens;
}

Result<std::string> TextCoder::Decode(std::span<const int64_t> prompt,
                                      std::span<const int64_t> made) const {
  if (bytes_) return TokensToText(made);
  if (tokenizer_ == nullptr) return fmt::format("{}", fmt::join(made, ","));
  // The first token of a text is decoded differently, so the prompt is decoded, too.
  HEDDLE_TRY(std::string before, tokenizer_->Decode(prompt));
  std::vector<int64_t> all(prompt.begin(), prompt.end());
  all.insert(all.end(), made.begin(), made.end());
  HEDDLE_TRY(std::string text, tokenizer_->Decode(all));
  size_t same = std::ranges::mismatch(before, text).in1 - before.begin();
  return PrintableText(std::string_view(text).substr(same));
}

}  // namespace heddle::run
