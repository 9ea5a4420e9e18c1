// Unicode properties and transformations that tokenizers use. All texts are UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace heddle::run {

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

// Reads the character at `at`, which must be inside `text`, and advances `at` past it.
uint32_t NextCharacter(std::string_view text, size_t& at);
// The last character of a text that is not empty.
uint32_t LastCharacter(std::string_view text);

bool IsWhiteSpace(uint32_t character);
// Letters, marks, digits, connectors and joiners: `\w` of Unicode's recommendations.
bool IsWordCharacter(uint32_t character);

// Offset after the whitespace at the start of `text`, and before the whitespace at its end.
size_t EndOfLeadingSpace(std::string_view text);
size_t BeginOfTrailingSpace(std::string_view text);

// Appends to `out`.
void AppendNormalized(NormalForm form, std::string_view text, std::string& out);
void AppendLowercase(std::string_view text, std::string& out);
// Appends bytes as UTF-8. Each longest prefix of a character that is not continued becomes U+FFFD.
void AppendLossy(std::string_view bytes, std::string& out);

}  // namespace heddle::run
