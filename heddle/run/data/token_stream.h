// Tokens of files, one after the other, as one long list.
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

// How a token is stored. Little-endian.
enum class TokenType { kU8, kI8, kU16, kI16, kU32, kI32, kI64 };
int64_t SizeOf(TokenType type);

// Where tokens lie.
struct TokenSegment {
  // For messages.
  std::string name;
  // None for tokens that the program carries.
  std::shared_ptr<const MappedFile> file;
  // What lists its documents, if a file does.
  std::shared_ptr<const MappedFile> index;
  // Of whole tokens, anywhere in the file. They need not be aligned.
  std::string_view bytes;
  TokenType type = TokenType::kU8;
  // A token that follows the last, without standing in the file: the end of a document.
  std::optional<int64_t> closing;
  // A token that ends a document wherever it stands.
  std::optional<int64_t> document_end;
  // Or, for files that list their documents: the last token of the document that holds this one, both counted from the first token of
  // the segment.
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

  // Tokens from `begin` on, which must be there. Fails for one that is not in the vocabulary, with its place.
  Status Read(int64_t begin, std::span<int64_t> tokens, int64_t vocab) const;
  // The largest of `count` tokens from `begin` on. Fails for one outside of the vocabulary, with
  // its file and byte, and the largest token of that file. `progress` may be empty.
  Result<int64_t> Largest(int64_t begin, int64_t count, int64_t vocab,
                          const std::function<void(const std::string&)>& progress) const;
  // Bytes of `count` tokens from `begin` on.
  int64_t BytesOf(int64_t begin, int64_t count) const;
  // Sets labels[i] to kIgnoredLabel where token begin + i, which Read put into `tokens`, ends a document.
  void IgnoreCrossings(int64_t begin, std::span<const int64_t> tokens,
                       std::span<int64_t> labels) const;
  // Of sizes and contents. Of long files, of blocks at equal distances.
  uint64_t Hash() const;

 private:
  // Calls `visit(segment, first token in it, offset from begin, count)` for every part of [begin, begin + count).
  template <typename Visit>
  Status ForEachPart(int64_t begin, int64_t count, Visit&& visit) const;

  std::vector<TokenSegment> segments_;
  // Where each segment ends.
  std::vector<int64_t> ends_;
};

}  // namespace heddle::run
