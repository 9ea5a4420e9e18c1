// Decoding: turns the texts of tokens into a text.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "heddle/run/tokenizer/pattern.h"

namespace heddle::run {

struct ByteLevelDecoder {};
struct ByteFallbackDecoder {};
struct FuseDecoder {};
// Removes at most `start` and `stop` times a character from the ends of each part.
struct StripDecoder {
  uint32_t content = ' ';
  size_t start = 0;
  size_t stop = 0;
};
struct ReplaceDecoder {
  Pattern pattern;
  std::string content;
};
struct MetaspaceDecoder {
  uint32_t replacement = 0x2581;
  // Drops the spaces of the first token.
  bool drops_first = true;
};
using DecodeStep = std::variant<ByteLevelDecoder, ByteFallbackDecoder, FuseDecoder, StripDecoder,
                                ReplaceDecoder, MetaspaceDecoder>;

// Applies the steps to `parts`, and joins them.
Result<std::string> DecodeParts(const std::vector<DecodeStep>& steps,
                                std::vector<std::string> parts);

}  // namespace heddle::run
