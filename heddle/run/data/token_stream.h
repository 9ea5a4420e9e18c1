// TokenStream: the tokens of several files, one after the other.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/mapped_file.h"

namespace heddle::run {

// Types of stored tokens, little-endian.
enum class TokenType { kU8, kI8, kU16, kI16, kU32, kI32, kI64 };
int64_t SizeOf(TokenType type);

// The tokens of one file.
struct TokenSegment {
  // For error messages.
  std::string name;
  // Null for the built-in corpus.
  std::shared_ptr<const MappedFile> file;
  // The file that lists the documents; null if there is none.
  std::shared_ptr<const MappedFile> index;
  // The stored tokens, anywhere in the file and not necessarily aligned.
  std::string_view bytes;
  TokenType type = TokenType::kU8;
  // A byte for each stored token: 1 if it counts towards the loss where it is a label, otherwise 0.
  // Empty: all count.
  std::string_view mask = {};
  // The file of the mask, if it is not that of the tokens.
  std::shared_ptr<const MappedFile> mask_file = {};
  // An additional token at the end that is not in the file: the end of the document.
  std::optional<int64_t> closing;
  // The token that ends a document at every occurrence.
  std::optional<int64_t> document_end;
  // For files that list their documents: maps a token to the last token of its document. Both count
  // from the first token of the segment.
  std::function<int64_t(int64_t)> document_last;

  int64_t stored() const { return static_cast<int64_t>(bytes.size()) / SizeOf(type); }
  int64_t size() const { return stored() + (closing ? 1 : 0); }
  bool knows_documents() const { return document_end || document_last; }
};

class TokenStream {
 public:
  void Add(TokenSegment segment);

  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }
  std::span<TokenSegment> segments() { return segments_; }
  bool has_mask() const;

  // Reads tokens from `begin` on, which must exist. Fails for a token outside the vocabulary, and
  // names its file and byte.
  Status Read(int64_t begin, std::span<int64_t> tokens, int64_t vocab) const;
  // Returns the largest of `count` tokens from `begin` on. Fails for a token outside the
  // vocabulary; the error states its file and byte, and the largest token of that file. Fails for a
  // mask with other values than 0 and 1. `progress` may be empty.
  Result<int64_t> Largest(int64_t begin, int64_t count, int64_t vocab,
                          const std::function<void(const std::string&)>& progress) const;
  // Returns the bytes of `count` tokens from `begin` on.
  int64_t BytesOf(int64_t begin, int64_t count) const;
  // Sets labels[i] to kIgnoredLabel if the mask of token begin + i is 0. Fails for values other
  // than 0 and 1.
  Status IgnoreMasked(int64_t begin, std::span<int64_t> labels) const;
  // Sets labels[i] to kDocumentEndLabel if token begin + i ends a document. `tokens` is the result
  // of Read.
  void IgnoreCrossings(int64_t begin, std::span<const int64_t> tokens,
                       std::span<int64_t> labels) const;
  // Hashes sizes and contents. For long files it hashes blocks at equal distances.
  uint64_t Hash() const;

 private:
  // Calls `visit(segment, first token in it, offset from begin, count)` for every segment that
  // overlaps [begin, begin + count).
  template <typename Visit>
  Status ForEachPart(int64_t begin, int64_t count, Visit&& visit) const;

  std::vector<TokenSegment> segments_;
  // Position at which each segment ends.
  std::vector<int64_t> ends_;
};

}  // namespace heddle::run
