// Text as tokens, a byte each: vocabularies begin with all bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/result.h"

namespace heddle {

// The least vocabulary that byte-level text needs.
constexpr int64_t kByteVocab = 256;
// Stands behind every document; no text has it.
constexpr int64_t kByteDocumentEnd = 0;

std::vector<int64_t> BytesToTokens(std::string_view text);
// Fails for a token that is no byte. A vocabulary may have more of them, and an untrained model may say them.
Result<std::string> TokensToBytes(std::span<const int64_t> tokens);
// The same for people: what is no UTF-8, no byte, or not to be printed is shown as U+FFFD. Ends at the end of a document.
std::string TokensToText(std::span<const int64_t> tokens);

}  // namespace heddle
