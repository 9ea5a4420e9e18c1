// Text as tokens, a byte each: vocabularies begin with all bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace heddle::run {

// The least vocabulary that byte-level text needs.
constexpr int64_t kByteVocab = 256;
// Stands behind every document; no text has it.
constexpr int64_t kByteDocumentEnd = 0;

std::vector<int64_t> BytesToTokens(std::string_view text);
// Text to print: invalid UTF-8, tokens that are not bytes, and control characters become U+FFFD.
// Stops at the end of a document.
std::string TokensToText(std::span<const int64_t> tokens);

}  // namespace heddle::run
