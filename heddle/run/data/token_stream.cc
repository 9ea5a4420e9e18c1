#include "heddle/run/data/token_stream.h"

#include <algorithm>
#include <cstring>

#include "heddle/core/base/clock.h"
#include "heddle/core/base/hash.h"
#include "heddle/core/base/text.h"
#include "heddle/core/base/units.h"
#include "heddle/run/data/dataset.h"

namespace heddle::run {
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

struct TokenRange {
  int64_t least = 0;
  int64_t largest = 0;
};

// Processes blocks of a fixed size, so that compilers vectorize the loop.
template <typename T>
TokenRange RangeOf(const char* bytes, int64_t count) {
  constexpr int64_t kBlock = 64;
  T least[kBlock] = {};
  T largest[kBlock] = {};
  T tokens[kBlock] = {};
  auto add = [&] {
    for (int64_t i = 0; i < kBlock; ++i) {
      least[i] = std::min(least[i], tokens[i]);
      largest[i] = std::max(largest[i], tokens[i]);
    }
  };
  auto from = [&](int64_t at) { return bytes + at * static_cast<int64_t>(sizeof(T)); };
  int64_t whole = count / kBlock * kBlock;
  for (int64_t at = 0; at < whole; at += kBlock) {
    std::memcpy(tokens, from(at), sizeof tokens);
    add();
  }
  // The last block overlaps the one before: counting a token twice does not change the range.
  std::memcpy(tokens, from(whole), static_cast<size_t>(count - whole) * sizeof(T));
  add();
  return {static_cast<int64_t>(*std::ranges::min_element(least)),
          static_cast<int64_t>(*std::ranges::max_element(largest))};
}

TokenRange RangeOf(TokenType type, const char* bytes, int64_t count) {
  switch (type) {
    case TokenType::kU8: return RangeOf<uint8_t>(bytes, count);
    case TokenType::kI8: return RangeOf<int8_t>(bytes, count);
    case TokenType::kU16: return RangeOf<uint16_t>(bytes, count);
    case TokenType::kI16: return RangeOf<int16_t>(bytes, count);
    case TokenType::kU32: return RangeOf<uint32_t>(bytes, count);
    case TokenType::kI32: return RangeOf<int32_t>(bytes, count);
    case TokenType::kI64: return RangeOf<int64_t>(bytes, count);
  }
  return {};
}

// Returns the byte of a token, or of a value of the mask, in its file.
int64_t ByteOf(const TokenSegment& segment, std::string_view part, int64_t offset) {
  return (segment.file ? part.data() - segment.file->bytes().data() : 0) + offset;
}

Status CheckVocab(const TokenSegment& segment, int64_t first, std::span<const int64_t> tokens,
                  int64_t vocab) {
  auto outside = [&](int64_t token) { return token < 0 || token >= vocab; };
  auto bad = std::ranges::find_if(tokens, outside);
  if (bad == tokens.end()) return Done{};
  return Error(
      Diag::kData, "`{}`: the token at byte {} is {}, but the vocabulary has {}", segment.name,
      ByteOf(segment, segment.bytes, (first + (bad - tokens.begin())) * SizeOf(segment.type)), *bad,
      WithCommas(vocab));
}

// Checks the mask of `count` stored tokens from `first` on.
Status CheckMask(const TokenSegment& segment, int64_t first, int64_t count) {
  if (segment.mask.empty()) return Done{};
  std::string_view mask =
      segment.mask.substr(static_cast<size_t>(first), static_cast<size_t>(count));
  if (RangeOf(TokenType::kU8, mask.data(), count).largest <= 1) return Done{};
  size_t bad = mask.find_first_not_of(std::string_view("\0\1", 2));
  return Error(Diag::kData, "`{}`: the loss mask at byte {} is {}, expected 0 or 1", segment.name,
               ByteOf(segment, segment.mask, first + static_cast<int64_t>(bad)),
               static_cast<uint8_t>(mask[bad]));
}

uint64_t HashBytes(std::string_view bytes) {
  uint64_t hash = bytes.size();
  if (bytes.size() <= kBlockBytes * kHashedBlocks) return MixHash(hash, Hash64(bytes));
  size_t last = bytes.size() - kBlockBytes;
  for (size_t i = 0; i < kHashedBlocks; ++i) {
    // Positions are evenly spaced from the first block to the last. Dividing first avoids overflow.
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

bool TokenStream::has_mask() const {
  return std::ranges::any_of(segments_, [](const TokenSegment& s) { return !s.mask.empty(); });
}

void TokenStream::Add(TokenSegment segment) {
  if (segment.size() == 0) return;
  ends_.push_back(size() + segment.size());
  segments_.push_back(std::move(segment));
}

template <typename Visit>
Status TokenStream::ForEachPart(int64_t begin, int64_t count, Visit&& visit) const {
  HEDDLE_CHECK(count <= size() - begin, "the tokens end before `begin` + `count`");
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

int64_t TokenStream::BytesOf(int64_t begin, int64_t count) const {
  int64_t bytes = 0;
  auto add = [&](const TokenSegment& segment, int64_t, int64_t, int64_t part) -> Status {
    bytes += part * SizeOf(segment.type);
    return Done{};
  };
  HEDDLE_CHECK(ForEachPart(begin, count, add).ok(), "unexpected failure");
  return bytes;
}

Result<int64_t> TokenStream::Largest(
    int64_t begin, int64_t count, int64_t vocab,
    const std::function<void(const std::string&)>& progress) const {
  constexpr int64_t kChunkTokens = int64_t{16} << 20;
  constexpr double kQuietSeconds = 5;
  int64_t largest = 0;
  int64_t done = 0;
  int64_t all = BytesOf(begin, count);
  Clock since_last;
  auto scan = [&](const TokenSegment& segment, int64_t first, int64_t, int64_t part) -> Status {
    int64_t size = SizeOf(segment.type);
    int64_t end = std::min(first + part, segment.stored());
    std::optional<int64_t> bad_chunk;
    int64_t of_file = 0;
    for (int64_t at = first; at < end; at += kChunkTokens) {
      if (segment.file) HEDDLE_RETURN_IF_ERROR(segment.file->CheckWhole());
      int64_t tokens = std::min(kChunkTokens, end - at);
      HEDDLE_RETURN_IF_ERROR(CheckMask(segment, at, tokens));
      TokenRange range = RangeOf(segment.type, segment.bytes.data() + at * size, tokens);
      if (!bad_chunk && (range.least < 0 || range.largest >= vocab)) bad_chunk = at;
      of_file = std::max(of_file, range.largest);
      done += tokens * size;
      if (!progress || Seconds(since_last.Elapsed()) < kQuietSeconds) continue;
      progress(fmt::format("comparing tokens with the vocabulary: {} of {}", Format(Bytes{done}),
                           Format(Bytes{all})));
      since_last = Clock();
    }
    largest = std::max(largest, of_file);
    if (!bad_chunk) return Done{};
    std::vector<int64_t> chunk(static_cast<size_t>(std::min(kChunkTokens, end - *bad_chunk)));
    Widen(segment.type, segment.bytes.data() + *bad_chunk * size, chunk);
    Status bad = CheckVocab(segment, *bad_chunk, chunk, vocab);
    if (of_file >= vocab)
      bad.diagnostics()[0].message += fmt::format(
          "; the largest token of the file is {}, so --model.vocab_size must be at least {}",
          of_file, of_file + 1);
    return bad;
  };
  HEDDLE_RETURN_IF_ERROR(ForEachPart(begin, count, scan));
  return largest;
}

Status TokenStream::IgnoreMasked(int64_t begin, std::span<int64_t> labels) const {
  auto ignore = [&](const TokenSegment& segment, int64_t first, int64_t at,
                    int64_t count) -> Status {
    if (segment.mask.empty()) return Done{};
    HEDDLE_RETURN_IF_ERROR(CheckMask(segment, first, count));
    for (int64_t i = 0; i < count; ++i) {
      if (segment.mask[static_cast<size_t>(first + i)] == 0)
        labels[static_cast<size_t>(at + i)] = kIgnoredLabel;
    }
    return Done{};
  };
  return ForEachPart(begin, static_cast<int64_t>(labels.size()), ignore);
}

void TokenStream::IgnoreCrossings(int64_t begin, std::span<const int64_t> tokens,
                                  std::span<int64_t> labels) const {
  auto ignore = [&](const TokenSegment& segment, int64_t first, int64_t at,
                    int64_t count) -> Status {
    if (segment.document_last) {
      for (int64_t last = segment.document_last(first); last < first + count;
           last = segment.document_last(last + 1))
        labels[static_cast<size_t>(at + last - first)] = kDocumentEndLabel;
      return Done{};
    }
    for (int64_t i = at; i < at + count; ++i) {
      if (tokens[static_cast<size_t>(i)] == segment.document_end)
        labels[static_cast<size_t>(i)] = kDocumentEndLabel;
    }
    return Done{};
  };
  Status done = ForEachPart(begin, static_cast<int64_t>(labels.size()), ignore);
  HEDDLE_CHECK(done.ok(), "unexpected failure");
}

uint64_t TokenStream::Hash() const {
  uint64_t hash = 0;
  for (const TokenSegment& segment : segments_) {
    hash = MixHash(hash, static_cast<uint64_t>(segment.type));
    hash = MixHash(hash, HashBytes(segment.bytes));
    if (segment.index) hash = MixHash(hash, HashBytes(segment.index->bytes()));
    if (!segment.mask.empty()) hash = MixHash(hash, HashBytes(segment.mask));
  }
  return hash;
}

}  // namespace heddle::run
