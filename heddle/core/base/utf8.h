// UTF-8 text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle {

// The number of bytes of the first character of `text`; 0 if it is not UTF-8, or `text` is empty.
size_t Utf8Length(std::string_view text);
// The offset of the first byte that is not UTF-8; the size of `text` if all are.
size_t FirstNotUtf8(std::string_view text);
// Appends a character, which must not be above U+10FFFF.
void AppendUtf8(std::string& out, uint32_t character);
// The longest prefix of at most `size` bytes that does not end within a character.
std::string_view Utf8Prefix(std::string_view text, size_t size);

}  // namespace heddle
