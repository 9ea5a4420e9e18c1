// Tokenizers of Hugging Face folders (tokenizer.json): byte-pair encoding, byte-level or with byte
// fallback. Tokens are those of the `tokenizers` package.
//
//   HEDDLE_TRY(std::shared_ptr<const Tokenizer> tokenizer, Tokenizer::Open("llama/"));
//   TextEncoder encoder(*tokenizer);
//   std::vector<int32_t> tokens;
//   HEDDLE_RETURN_IF_ERROR(encoder.Encode("Once upon a time", tokens));
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/hash.h"
#include "heddle/core/base/result.h"
#include "heddle/run/tokenizer/added_tokens.h"
#include "heddle/run/tokenizer/bpe.h"
#include "heddle/run/tokenizer/decoder.h"
#include "heddle/run/tokenizer/normalizer.h"
#include "heddle/run/tokenizer/pre_tokenizer.h"

namespace heddle::run {

// The name of the file in a folder.
inline constexpr const char* kTokenizerFile = "tokenizer.json";

// The content of a tokenizer.json.
struct TokenizerParts {
  std::vector<NormalStep> normalizer;
  std::vector<WordStep> pre_tokenizer;
  BpeModel model;
  std::vector<AddedToken> added;
  // Tokens around the text.
  std::vector<int32_t> before;
  std::vector<int32_t> after;
  // Without a decoder, texts of tokens are joined by spaces.
  bool has_decoder = false;
  std::vector<DecodeStep> decoder;
  // By id; empty where no token has the id.
  std::vector<std::string> texts;
};

// Reads the content of `file`. Fails for damaged files and for parts that are not supported, with a
// position.
Result<TokenizerParts> ReadTokenizerParts(std::string text, std::string file);

class Tokenizer {
 public:
  // Opens a folder with a tokenizer.json, or such a file. tokenizer_config.json next to it, if
  // there is one, names the token that ends documents.
  static Result<std::shared_ptr<const Tokenizer>> Open(const std::string& path);
  static Result<std::shared_ptr<const Tokenizer>> Parse(std::string text, std::string file);

  // The largest token + 1.
  int64_t vocab() const { return static_cast<int64_t>(parts_.texts.size()); }
  // Fails if a model with a vocabulary of `vocab` tokens does not have all tokens.
  Status CheckFits(int64_t vocab) const;
  // The token with this text; nullopt if there is none.
  std::optional<int32_t> Find(std::string_view text) const;
  // The token that ends a document.
  std::optional<int32_t> document_end() const { return document_end_; }
  // Identifies the content of tokenizer.json.
  Hash128 hash() const { return hash_; }
  // The path of tokenizer.json.
  const std::string& file() const { return file_; }

  // The text of tokens, without special tokens unless `with_special`. Tokens that do not exist have
  // no text.
  Result<std::string> Decode(std::span<const int64_t> tokens, bool with_special = false) const;

 private:
  friend class TextEncoder;
  Tokenizer() = default;
  Status ReadDocumentEnd(const std::string& config);

  TokenizerParts parts_;
  // Added tokens that are found in the original text, and in the normalized text.
  AddedTokenSet original_;
  AddedTokenSet normalized_;
  // By id.
  std::vector<bool> special_;
  std::optional<int32_t> document_end_;
  Hash128 hash_;
  std::string file_;
};

// Encodes texts, for one thread. Remembers words, so reuse it.
class TextEncoder {
 public:
  // `tokenizer` must outlive this.
  explicit TextEncoder(const Tokenizer& tokenizer);

  // Appends the tokens of a text; with those that the tokenizer puts around a text if
  // `with_special`. Fails for text that is not UTF-8.
  Status Encode(std::string_view text, std::vector<int32_t>& out, bool with_special = true);
  // The tokens that the tokenizer puts before a text.
  std::span<const int32_t> before() const { return tokenizer_.parts_.before; }

 private:
  Status EncodePart(std::string_view text, bool at_start, std::vector<int32_t>& out);

  const Tokenizer& tokenizer_;
  MatchMemory memory_;
  WordEncoder words_;
  std::vector<TextPart> parts_;
  std::vector<TextPart> inner_;
  NormalText normal_;
};

}  // namespace heddle::run
