#include "heddle/data/byte_tokenizer.h"

#include <algorithm>

namespace heddle {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

}  // namespace

size_t Utf8Length(std::string_view text) {
  auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  auto follows = [&](size_t i, unsigned least = 0x80, unsigned most = 0xBF) {
    return byte(i) >= least && byte(i) <= most;
  };
  unsigned first = byte(0);
  if (text.empty()) return 0;
  if (first < 0x80) return 1;
  if (first >= 0xC2 && first <= 0xDF) return follows(1) ? 2 : 0;
  // No overlong forms, no surrogates, nothing above U+10FFFF.
  if (first >= 0xE0 && first <= 0xEF) {
    bool second = follows(1, first == 0xE0 ? 0xA0 : 0x80, first == 0xED ? 0x9F : 0xBF);
    return second && follows(2) ? 3 : 0;
  }
  if (first >= 0xF0 && first <= 0xF4) {
    bool second = follows(1, first == 0xF0 ? 0x90 : 0x80, first == 0xF4 ? 0x8F : 0xBF);
    return second && follows(2) && follows(3) ? 4 : 0;
  }
  return 0;
}

std::vector<int64_t> BytesToTokens(std::string_view text) {
  std::vector<int64_t> tokens(text.size());
  std::ranges::transform(text, tokens.begin(), [](char c) { return static_cast<uint8_t>(c); });
  return tokens;
}

std::string TokensToText(std::span<const int64_t> tokens) {
  std::string text;
  auto end = std::ranges::find(tokens, kByteDocumentEnd);
  // 0xFF begins no character: it stands for what is no byte.
  for (int64_t token : tokens.first(static_cast<size_t>(end - tokens.begin())))
    text += static_cast<char>(token > 0 && token < kByteVocab ? token : 0xFF);
  std::string shown;
  for (std::string_view rest = text; !rest.empty();) {
    size_t length = Utf8Length(rest);
    auto first = static_cast<unsigned char>(rest[0]);
    bool control = (first < 0x20 && first != '\n' && first != '\t') || first == 0x7F ||
                   // The control characters U+0080 to U+009F move cursors, too.
                   (length == 2 && first == 0xC2 && static_cast<unsigned char>(rest[1]) < 0xA0);
    shown += length == 0 || control ? kReplacement : rest.substr(0, length);
    rest.remove_prefix(std::max<size_t>(length, 1));
  }
  return shown;
}

}  // namespace heddle
