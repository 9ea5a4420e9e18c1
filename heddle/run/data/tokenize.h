// Turns text into token files.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/run/data/documents.h"
#include "heddle/run/tokenizer/tokenizer.h"

namespace heddle::run {

struct TokenizeOptions {
  DocumentKeys keys = {};
  // Appended to each document, unless the tokenizer did so.
  std::optional<int32_t> document_end = {};
  // Tokens do not depend on it.
  int64_t threads = 1;
  // Called with the number of bytes that have been read. May be empty.
  std::function<void(int64_t)> progress = {};
};

// Tokens of one or several documents.
struct DocumentTokens {
  std::vector<int32_t> tokens;
  // Number of tokens of each document.
  std::vector<uint32_t> lengths;
  // For each token, 1 if it counts towards the loss, and 0 if it is a prompt's. Empty if no file
  // has pairs.
  std::vector<uint8_t> mask;
};

using WriteTokens = std::function<Status(const DocumentTokens&)>;

// Encodes all documents, and calls `write` with them in order. The first error ends the work.
// Memory has the tokens of a few parts per thread.
Status TokenizeDocuments(const Tokenizer& tokenizer, const DocumentSource& documents,
                         const TokenizeOptions& options, const WriteTokens& write);
Status TokenizeDocuments(const Tokenizer& tokenizer, const DocumentFiles& documents,
                         const TokenizeOptions& options, const WriteTokens& write);

}  // namespace heddle::run
