// Megatron-LM's token files. `.bin` contains the tokens, and `.idx` divides them into sequences and
// documents. Layout of `.idx`:
//
// | bytes                    | content                                           |
// | 9                        | magic                                             |
// | 8                        | version                                           |
// | 1                        | type of tokens                                    |
// | 8                        | number of sequences                               |
// | 8                        | number of documents + 1                           |
// | 4 per sequence           | length of the sequence                            |
// | 8 per sequence           | byte at which the sequence begins                 |
// | 8 per document + 8       | first sequence of each document; all sequences    |
#include <cstring>

#include "heddle/core/base/text.h"
#include "heddle/run/data/source.h"

namespace heddle::run {
namespace {

constexpr std::string_view kMagic("MMIDIDX\0\0", 9);
constexpr size_t kHeader = 9 + 8 + 1 + 8 + 8;

template <typename T>
T At(std::string_view bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(T));
  return value;
}

struct Index {
  std::shared_ptr<const MappedFile> file;
  TokenType type = TokenType::kU16;
  uint64_t sequences = 0;
  // Number of documents + 1.
  uint64_t bounds = 0;

  int64_t Length(uint64_t i) const { return At<int32_t>(file->bytes(), kHeader + 4 * i); }
  int64_t Begin(uint64_t i) const {
    return At<int64_t>(file->bytes(), kHeader + 4 * sequences + 8 * i);
  }
  // First sequence of a document.
  int64_t Bound(uint64_t i) const {
    return At<int64_t>(file->bytes(), kHeader + 12 * sequences + 8 * i);
  }
  // First token of a document.
  int64_t FirstToken(uint64_t i, int64_t tokens) const {
    auto sequence = static_cast<uint64_t>(Bound(i));
    return sequence == sequences ? tokens : Begin(sequence) / SizeOf(type);
  }
};

Result<TokenType> TypeOf(const std::string& path, uint8_t code) {
  switch (code) {
    case 1: return TokenType::kU8;
    case 2: return TokenType::kI8;
    case 3: return TokenType::kI16;
    case 4: return TokenType::kI32;
    case 5: return TokenType::kI64;
    case 8: return TokenType::kU16;
    default:
      return Error(Diag::kData,
                   "`{}` specifies token type {}, expected an integer type: 1 to 5, or 8", path,
                   code);
  }
}

Result<Index> ReadHeader(std::shared_ptr<const MappedFile> file) {
  std::string_view bytes = file->bytes();
  const std::string& path = file->path();
  if (!bytes.starts_with(kMagic))
    return Error(Diag::kData, "`{}` is not an index of Megatron-LM: it does not begin with MMIDIDX",
                 path);
  if (bytes.size() < kHeader)
    return Error(Diag::kData, "`{}` ends in the middle of its header, after {} bytes", path,
                 bytes.size());
  if (At<uint64_t>(bytes, 9) != 1)
    return Error(Diag::kData, "`{}` has version {}, expected 1", path, At<uint64_t>(bytes, 9));
  Index index;
  HEDDLE_TRY(index.type, TypeOf(path, At<uint8_t>(bytes, 17)));
  index.sequences = At<uint64_t>(bytes, 18);
  index.bounds = At<uint64_t>(bytes, 26);
  // Multimodal data has one more byte per sequence, which does not concern tokens.
  uint64_t room = bytes.size() - kHeader;
  if (index.sequences > room / 12 || index.bounds > (room - 12 * index.sequences) / 8)
    return Error(Diag::kData, "`{}` ends after {} bytes, before its {} sequences and {} documents",
                 path, bytes.size(), index.sequences, index.bounds == 0 ? 0 : index.bounds - 1);
  index.file = std::move(file);
  return index;
}

// Checks that sequences follow each other without gaps up to the end of the tokens, and that
// documents consist of whole sequences.
Status CheckIndex(const Index& index, std::string_view tokens) {
  const std::string& path = index.file->path();
  int64_t end = 0;
  for (uint64_t i = 0; i < index.sequences; ++i) {
    if (index.Begin(i) != end || index.Length(i) < 0)
      return Error(
          Diag::kData,
          "`{}`: sequence {} begins at byte {} with {} tokens, but the previous one ends at {}",
          path, i, index.Begin(i), index.Length(i), end);
    end += index.Length(i) * SizeOf(index.type);
    if (end > static_cast<int64_t>(tokens.size()))
      return Error(Diag::kData, "`{}`: sequence {} ends at byte {}, but the tokens have {} bytes",
                   path, i, end, tokens.size());
  }
  if (end != static_cast<int64_t>(tokens.size()))
    return Error(Diag::kData, "`{}`: its sequences end at byte {}, but the tokens have {} bytes",
                 path, end, tokens.size());
  for (uint64_t i = 0; i < index.bounds; ++i) {
    int64_t least = i == 0 ? 0 : index.Bound(i - 1);
    if (index.Bound(i) < least || index.Bound(i) > static_cast<int64_t>(index.sequences))
      return Error(Diag::kData, "`{}`: document {} begins with sequence {}, expected {} to {}",
                   path, i, index.Bound(i), least, index.sequences);
  }
  return Done{};
}

// Returns the last token of the document that contains `token`: the one before the next document.
int64_t DocumentLast(const Index& index, int64_t tokens, int64_t token) {
  if (token >= tokens) return INT64_MAX;
  uint64_t low = 0;
  uint64_t high = index.bounds;
  while (low < high) {
    uint64_t middle = low + (high - low) / 2;
    if (index.FirstToken(middle, tokens) > token) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return (low == index.bounds ? tokens : index.FirstToken(low, tokens)) - 1;
}

}  // namespace

Result<TokenSegment> OpenMegatron(const std::string& bin_path, const std::string& idx_path) {
  HEDDLE_TRY(auto idx_file, MappedFile::Open(idx_path));
  HEDDLE_TRY(Index index, ReadHeader(std::move(idx_file)));
  HEDDLE_TRY(auto tokens, MappedFile::Open(bin_path));
  HEDDLE_RETURN_IF_ERROR(CheckIndex(index, tokens->bytes()));
  TokenSegment segment;
  segment.name = bin_path;
  segment.bytes = tokens->bytes();
  segment.type = index.type;
  segment.index = index.file;
  segment.file = std::move(tokens);
  if (index.bounds > 0)
    segment.document_last = [index, all = segment.stored()](int64_t token) {
      return DocumentLast(index, all, token);
    };
  return segment;
}

}  // namespace heddle::run
