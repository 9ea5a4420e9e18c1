#include "heddle/core/base/utf8.h"

#include <cstring>

namespace heddle {

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

size_t FirstNotUtf8(std::string_view text) {
  constexpr uint64_t kHighBits = 0x8080808080808080;
  size_t at = 0;
  while (at < text.size()) {
    // Most text is ASCII: eight bytes in one step.
    uint64_t word = kHighBits;
    if (at + sizeof(word) <= text.size()) std::memcpy(&word, text.data() + at, sizeof(word));
    size_t length = (word & kHighBits) == 0 ? sizeof(word) : Utf8Length(text.substr(at));
    if (length == 0) break;
    at += length;
  }
  return at;
}

void AppendUtf8(std::string& out, uint32_t character) {
  auto add = [&](uint32_t byte) { out += static_cast<char>(byte); };
  auto add_last = [&](int count) {
    for (int i = count - 1; i >= 0; --i) add(0x80 | (character >> (6 * i) & 0x3F));
  };
  if (character < 0x80) {
    add(character);
  } else if (character < 0x800) {
    add(0xC0 | character >> 6);
    add_last(1);
  } else if (character < 0x10000) {
    add(0xE0 | character >> 12);
    add_last(2);
  } else {
    add(0xF0 | character >> 18);
    add_last(3);
  }
}

std::string_view Utf8Prefix(std::string_view text, size_t size) {
  if (text.size() <= size) return text;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xC0) == 0x80) --size;
  return text.substr(0, size);
}

}  // namespace heddle
