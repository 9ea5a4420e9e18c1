#include "heddle/run/data/byte_tokenizer.h"

#include <algorithm>

#include "heddle/core/base/utf8.h"

namespace heddle::run {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

std::vector<int64_t> BytesToTokens(std::string_view text) {
  std::vector<int64_t> tokens(text.size());
  std::ranges::transform(text, tokens.begin(), [](char c) { return static_cast<uint8_t>(c); });
  return tokens;
}

std::string TokensToText(std::span<const int64_t> tokens) {
  std::string text;
  auto end = std::ranges::find(tokens, kByteDocumentEnd);
  // 0xFF begins no character, so it can replace tokens that are not bytes.
  for (int64_t token : tokens.first(static_cast<size_t>(end - tokens.begin())))
    text += static_cast<char>(token > 0 && token < kByteVocab ? token : 0xFF);
  return PrintableText(text);
}

std::string PrintableText(std::string_view text) {
  std::string shown;
  for (std::string_view rest = text; !rest.empty();) {
    size_t length = Utf8Length(rest);
    auto first = static_cast<unsigned char>(rest[0]);
    bool control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F ||
                   // U+0080 to U+009F are control characters, too; terminals move the cursor for
                   // some of them.
                   (length == 2 && first == 0xC2 && static_cast<unsigned char>(rest[1]) < 0xA0);
    shown += length == 0 || control ? kReplacement : rest.substr(0, length);
    rest.remove_prefix(std::max<size_t>(length, 1));
  }
  return shown;
}

}  // namespace heddle::run
