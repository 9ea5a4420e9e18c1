#include "heddle/data/token_stream.h"

#include <algorithm>
#include <cstring>

#include "heddle/base/hash.h"
#include "heddle/base/text.h"
#include "heddle/data/dataset.h"

namespace heddle {
namespace {

constexpr size_t kBlockBytes = 4096;
constexpr size_t kHashedBlocks = 256;

template <typename T>
void Widen(const char* bytes, std::span<int64_t> tokens) {
  for (size_t i = 0; i < tokens.size(); ++i) {
    T token;
    std::memcpy(&token, bytes + i * sizeof(T), sizeof(T));
    tokens[i] = static_cast<int64_t>(token);
  }
}

void Widen(TokenType type, const char* bytes, std::span<int64_t> tokens) {
  switch (type) {
    case TokenType::kU8: return Widen<uint8_t>(bytes, tokens);
    case TokenType::kI8: return Widen<int8_t>(bytes, tokens);
    case TokenType::kU16: return Widen<uint16_t>(bytes, tokens);
    case TokenType::kI16: return Widen<int16_t>(bytes, tokens);
    case TokenType::kU32: return Widen<uint32_t>(bytes, tokens);
    case TokenType::kI32: return Widen<int32_t>(bytes, tokens);
    case TokenType::kI64: return Widen<int64_t>(bytes, tokens);
  }
}

// Where a stored token stands in its file.
int64_t ByteOf(const TokenSegment& segment, int64_t token) {
  int64_t begin = segment.file ? segment.bytes.data() - segment.file->bytes().data() : 0;
  return begin + token * SizeOf(segment.type);
}

Status CheckVocab(const TokenSegment& segment, int64_t first, std::span<const int64_t> tokens,
                  int64_t vocab) {
  auto outside = [&](int64_t token) { return token < 0 || token >= vocab; };
  auto bad = std::ranges::find_if(tokens, outside);
  if (bad == tokens.end()) return Done{};
  return Error(Diag::kData, "`{}`: the token at byte {} is {}, and the vocabulary has {}",
               segment.name, ByteOf(segment, first + (bad - tokens.begin())), *bad,
               WithCommas(vocab));
}

uint64_t HashBytes(std::string_view bytes) {
  uint64_t hash = bytes.size();
  if (bytes.size() <= kBlockBytes * kHashedBlocks) return MixHash(hash, Hash64(bytes));
  size_t last = bytes.size() - kBlockBytes;
  for (size_t i = 0; i < kHashedBlocks; ++i) {
    // The first block, the last, and those between; no product of these overflows.
    size_t begin =
        last / (kHashedBlocks - 1) * i + last % (kHashedBlocks - 1) * i / (kHashedBlocks - 1);
    hash = MixHash(hash, Hash64(bytes.substr(begin, kBlockBytes)));
  }
  return hash;
}

}  // namespace

int64_t SizeOf(TokenType type) {
  constexpr int64_t kSizes[] = {1, 1, 2, 2, 4, 4, 8};
  return kSizes[static_cast<size_t>(type)];
}

void TokenStream::Add(TokenSegment segment) {
  if (segment.size() == 0) return;
  ends_.push_back(size() + segment.size());
  segments_.push_back(std::move(segment));
}

template <typename Visit>
Status TokenStream::ForEachPart(int64_t begin, int64_t count, Visit&& visit) const {
  HEDDLE_CHECK(count <= size() - begin, "tokens beyond the end");
  auto at = static_cast<size_t>(std::ranges::upper_bound(ends_, begin) - ends_.begin());
  for (int64_t done = 0; done < count; ++at) {
    int64_t first = begin + done - (at == 0 ? 0 : ends_[at - 1]);
    int64_t part = std::min(count - done, segments_[at].size() - first);
    HEDDLE_RETURN_IF_ERROR(visit(segments_[at], first, done, part));
    done += part;
  }
  return Done{};
}

Status TokenStream::Read(int64_t begin, std::span<int64_t> tokens, int64_t vocab) const {
  auto read = [&](const TokenSegment& segment, int64_t first, int64_t at, int64_t count) -> Status {
    if (segment.file) HEDDLE_RETURN_IF_ERROR(segment.file->CheckWhole());
    if (segment.index) HEDDLE_RETURN_IF_ERROR(segment.index->CheckWhole());
    int64_t stored = std::min(count, segment.stored() - first);
    auto part = tokens.subspan(static_cast<size_t>(at), static_cast<size_t>(stored));
    Widen(segment.type, segment.bytes.data() + first * SizeOf(segment.type), part);
    if (stored < count) tokens[static_cast<size_t>(at + stored)] = *segment.closing;
    return CheckVocab(segment, first, part, vocab);
  };
  return ForEachPart(begin, static_cast<int64_t>(tokens.size()), read);
}

void TokenStream::IgnoreCrossings(int64_t begin, std::span<const int64_t> tokens,
                                  std::span<int64_t> labels) const {
  auto ignore = [&](const TokenSegment& segment, int64_t first, int64_t at,
                    int64_t count) -> Status {
    if (segment.document_last) {
      for (int64_t last = segment.document_last(first); last < first + count;
           last = segment.document_last(last + 1))
        labels[static_cast<size_t>(at + last - first)] = kIgnoredLabel;
      return Done{};
    }
    for (int64_t i = at; i < at + count; ++i) {
      if (tokens[static_cast<size_t>(i)] == segment.document_end)
        labels[static_cast<size_t>(i)] = kIgnoredLabel;
    }
    return Done{};
  };
  Status done = ForEachPart(begin, static_cast<int64_t>(labels.size()), ignore);
  HEDDLE_CHECK(done.ok(), "nothing here fails");
}

uint64_t TokenStream::Hash() const {
  uint64_t hash = 0;
  for (const TokenSegment& segment : segments_) {
    hash = MixHash(hash, static_cast<uint64_t>(segment.type));
    hash = MixHash(hash, HashBytes(segment.bytes));
    if (segment.index) hash = MixHash(hash, HashBytes(segment.index->bytes()));
  }
  return hash;
}

}  // namespace heddle
