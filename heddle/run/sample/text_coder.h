// TextCoder: turns prompts into tokens of a model, and tokens into text. Tokens are bytes, those of
// a tokenizer, or numbers without text.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/run/tokenizer/tokenizer.h"

namespace heddle::run {

// Returns the folder of a job's tokenizer: `given`, or that of its initial weights if they have
// one. Empty: none.
std::string FindTokenizer(const std::string& given, const std::string& weights);

class TextCoder {
 public:
  // Tokens are bytes, or those of the tokenizer in a folder; if it is empty, numbers. Fails if a
  // model with a vocabulary of `vocab` tokens does not have all tokens.
  static Result<TextCoder> Open(bool bytes, const std::string& tokenizer, int64_t vocab);

  // Whether tokens have text.
  bool has_text() const { return bytes_ || tokenizer_ != nullptr; }
  // The token that ends a text.
  std::optional<int64_t> end() const;
  // Without text, prompts are numbers separated by commas. Fails for an empty prompt. `flag` names
  // the prompt in errors.
  Result<std::vector<int64_t>> Encode(std::string_view flag, const std::string& prompt) const;
  // The text of tokens after a prompt, for printing.
  Result<std::string> Decode(std::span<const int64_t> prompt, std::span<const int64_t> made) const;

 private:
  bool bytes_ = false;
  int64_t vocab_ = 0;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

}  // namespace heddle::run
