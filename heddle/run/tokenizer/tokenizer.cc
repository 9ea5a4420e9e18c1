#include "heddle/run/tokenizer/tokenizer.h"

#include <sys/stat.h>

#include "heddle/core/base/file.h"
#include "heddle/core/base/json.h"
#include "heddle/core/base/utf8.h"

namespace heddle::run {
namespace {

// The text of a special token in tokenizer_config.json: a text, or an object with a content.
std::optional<std::string_view> ConfiguredToken(const JsonDocument& config, std::string_view key) {
  std::optional<JsonValue> value = config.root().Find(key);
  if (value && value->is_object()) value = value->Find("content");
  if (!value || !value->is_string()) return std::nullopt;
  return value->string();
}

}  // namespace

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Parse(std::string text, std::string file) {
  std::shared_ptr<Tokenizer> tokenizer(new Tokenizer());
  tokenizer->hash_ = HashBytes128(text.data(), text.size());
  tokenizer->file_ = file;
  HEDDLE_TRY(tokenizer->parts_, ReadTokenizerParts(std::move(text), std::move(file)));
  TokenizerParts& parts = tokenizer->parts_;
  tokenizer->special_.resize(parts.texts.size());
  MatchMemory memory;
  NormalText normal;
  // Special tokens first: of tokens that become equal when they are normalized, the first counts.
  for (bool special : {true, false}) {
    for (const AddedToken& token : parts.added) {
      if (token.special != special) continue;
      auto id = static_cast<size_t>(token.id);
      tokenizer->special_[id] = special;
      if (!token.normalized) {
        tokenizer->original_.Add(token, token.content);
        continue;
      }
      normal.text = token.content;
      HEDDLE_RETURN_IF_ERROR(Normalize(parts.normalizer, memory, normal));
      tokenizer->normalized_.Add(token, normal.text);
      // As the `tokenizers` package does, which then does not see the special token in it.
      if (normal.text != token.content) tokenizer->special_[id] = false;
      parts.texts[id] = normal.text;
    }
  }
  tokenizer->original_.Finish();
  tokenizer->normalized_.Finish();
  return std::shared_ptr<const Tokenizer>(std::move(tokenizer));
}

Result<std::shared_ptr<const Tokenizer>> Tokenizer::Open(const std::string& path) {
  bool folder = IsDirectory(path);
  std::string file = folder ? path + (path.ends_with('/') ? "" : "/") + kTokenizerFile : path;
  HEDDLE_TRY(std::string text, ReadFile(file));
  HEDDLE_TRY(std::shared_ptr<const Tokenizer> tokenizer, Parse(std::move(text), file));
  std::string config = file.substr(0, file.rfind('/') + 1) + "tokenizer_config.json";
  struct stat found;
  if (::stat(config.c_str(), &found) == 0)
    HEDDLE_RETURN_IF_ERROR(std::const_pointer_cast<Tokenizer>(tokenizer)->ReadDocumentEnd(config));
  return tokenizer;
}

Status Tokenizer::ReadDocumentEnd(const std::string& config) {
  HEDDLE_TRY(std::string text, ReadFile(config));
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::move(text), config, Diag::kTokenizer));
  std::optional<std::string_view> end = ConfiguredToken(document, "eos_token");
  if (!end) return Done{};
  document_end_ = Find(*end);
  if (!document_end_)
    return document.Fail(*document.root().Find("eos_token"),
                         "the end of documents is `{}`, which is not a token of {}", *end, file_);
  return Done{};
}

Status Tokenizer::CheckFits(int64_t vocab) const {
  if (this->vocab() <= vocab) return Done{};
  return Error(Diag::kTokenizer, "{} has {} tokens, but the vocabulary of the model has {}", file_,
               this->vocab(), vocab);
}

std::optional<int32_t> Tokenizer::Find(std::string_view text) const {
  for (const AddedToken& token : parts_.added) {
    if (token.content == text) return token.id;
  }
  int32_t found = parts_.model.vocab.Find(text);
  return found < 0 ? std::nullopt : std::optional(found);
}

Result<std::string> Tokenizer::Decode(std::span<const int64_t> tokens, bool with_special) const {
  std::vector<std::string> texts;
  for (int64_t token : tokens) {
    if (token < 0 || token >= vocab()) continue;
    auto id = static_cast<size_t>(token);
    if (parts_.texts[id].empty() || (special_[id] && !with_special)) continue;
    texts.push_back(parts_.texts[id]);
  }
  if (parts_.has_decoder) return DecodeParts(parts_.decoder, std::move(texts));
  std::string text;
  for (const std::string& part : texts) text += (text.empty() ? "" : " ") + part;
  return text;
}

TextEncoder::TextEncoder(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer), words_(tokenizer.parts_.pre_tokenizer, tokenizer.parts_.model) {}

Status TextEncoder::Encode(std::string_view text, std::vector<int32_t>& out, bool with_special) {
  if (size_t good = FirstNotUtf8(text); good < text.size())
    return Error(Diag::kTokenizer, "byte {} of the text is not UTF-8", good);
  const TokenizerParts& parts = tokenizer_.parts_;
  if (with_special) out.insert(out.end(), parts.before.begin(), parts.before.end());
  tokenizer_.original_.Split(text, parts_);
  for (const TextPart& part : parts_) {
    if (part.token >= 0) {
      out.push_back(part.token);
    } else {
      HEDDLE_RETURN_IF_ERROR(
          EncodePart(text.substr(part.begin, part.end - part.begin), part.begin == 0, out));
    }
  }
  if (with_special) out.insert(out.end(), parts.after.begin(), parts.after.end());
  return Done{};
}

Status TextEncoder::EncodePart(std::string_view text, bool at_start, std::vector<int32_t>& out) {
  if (!tokenizer_.parts_.normalizer.empty()) {
    normal_.text = text;
    normal_.at_start = at_start;
    HEDDLE_RETURN_IF_ERROR(Normalize(tokenizer_.parts_.normalizer, memory_, normal_));
    text = normal_.text;
    at_start = normal_.at_start;
  }
  tokenizer_.normalized_.Split(text, inner_);
  for (const TextPart& part : inner_) {
    if (part.token >= 0) {
      out.push_back(part.token);
    } else {
      HEDDLE_RETURN_IF_ERROR(words_.Encode(text.substr(part.begin, part.end - part.begin),
                                           at_start && part.begin == 0, memory_, out));
    }
  }
  return Done{};
}

}  // namespace heddle::run
