// Tokens that are the bytes of a text. All byte-level vocabularies begin with the 256 bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::run {

// The minimum size of a vocabulary for byte-level text.
constexpr int64_t kByteVocab = 256;
// The token that ends every document. Texts never contain it.
constexpr int64_t kByteDocumentEnd = 0;

std::vector<int64_t> BytesToTokens(std::string_view text);
// Returns text for printing, with U+FFFD for invalid UTF-8 and control characters.
std::string PrintableText(std::string_view text);
// Returns text for printing. Invalid UTF-8, tokens that are not bytes, and control characters
// become U+FFFD. Stops at the end of a document.
std::string TokensToText(std::span<const int64_t> tokens);

}  // namespace heddle::run
