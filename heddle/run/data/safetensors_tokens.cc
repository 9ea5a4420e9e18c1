// Tokens in a safetensors file: its only list of integers, or the list named `tokens`. `loss_mask`
// states which tokens count, and `document_lengths` divides them into documents.
#include <cstring>

#include "heddle/core/base/text.h"
#include "heddle/run/checkpoint/safetensors.h"
#include "heddle/run/data/source.h"

namespace heddle::run {
namespace {

std::optional<TokenType> TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kI64: return TokenType::kI64;
    case DType::kI32: return TokenType::kI32;
    case DType::kI16: return TokenType::kI16;
    case DType::kI8: return TokenType::kI8;
    case DType::kU8: return TokenType::kU8;
    default: return std::nullopt;
  }
}

constexpr const char* kMask = "loss_mask";
constexpr const char* kLengths = "document_lengths";

Result<const SafetensorsFile::Entry*> FindTokens(const SafetensorsFile& file) {
  const SafetensorsFile::Entry* found = nullptr;
  int64_t lists = 0;
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    if (entry.shape.size() != 1 || !TypeOf(entry.dtype)) continue;
    if (entry.name == "tokens") return &entry;
    if (entry.name == kMask || entry.name == kLengths) continue;
    found = &entry;
    ++lists;
  }
  if (lists == 1) return found;
  return Error(Diag::kData,
               "`{}` has {} of integers among its {}; keep one list, or name it `tokens`",
               file.path(), Counted(lists, "list"), Counted(file.entries().size(), "tensor"));
}

Status CheckMaskEntry(const SafetensorsFile& file, const SafetensorsFile::Entry& mask,
                      const SafetensorsFile::Entry& tokens) {
  if (mask.dtype != DType::kU8 && mask.dtype != DType::kBool)
    return Error(Diag::kData, "`{}`: `{}` is {}, expected u8 or bool", file.path(), kMask,
                 Name(mask.dtype));
  if (mask.shape == tokens.shape) return Done{};
  return Error(Diag::kData, "`{}`: `{}` has the shape {}, but `{}` has {}", file.path(), kMask,
               FormatSizes(mask.shape), tokens.name, FormatSizes(tokens.shape));
}

// Returns one past the last token of each document.
Result<std::vector<int64_t>> DocumentEnds(const SafetensorsFile& file,
                                          const SafetensorsFile::Entry& lengths,
                                          std::string_view bytes, int64_t tokens) {
  bool is_wide = lengths.dtype == DType::kI64;
  if ((!is_wide && lengths.dtype != DType::kI32) || lengths.shape.size() != 1)
    return Error(Diag::kData, "`{}`: `{}` is {}{}, expected a list of i32 or i64", file.path(),
                 kLengths, Name(lengths.dtype), FormatSizes(lengths.shape));
  std::vector<int64_t> ends;
  int64_t end = 0;
  for (int64_t i = 0; i < lengths.shape[0]; ++i) {
    int64_t length = 0;
    int32_t narrow = 0;
    const char* at = bytes.data() + i * ItemSize(lengths.dtype);
    if (is_wide) {
      std::memcpy(&length, at, sizeof length);
    } else {
      std::memcpy(&narrow, at, sizeof narrow);
      length = narrow;
    }
    if (length < 0 || length > tokens - end)
      return Error(Diag::kData,
                   "`{}`: document {} has {} tokens, but {} of all {} follow the previous one",
                   file.path(), i, length, tokens - end, tokens);
    ends.push_back(end += length);
  }
  if (end == tokens) return ends;
  return Error(Diag::kData, "`{}`: its documents have {} tokens together, but the file has {}",
               file.path(), end, tokens);
}

}  // namespace

Result<TokenSegment> OpenSafetensorsTokens(const std::string& path) {
  HEDDLE_TRY(SafetensorsFile file, SafetensorsFile::Open(path));
  HEDDLE_TRY(const SafetensorsFile::Entry* entry, FindTokens(file));
  HEDDLE_TRY(auto mapped, MappedFile::Open(path));
  int64_t size = static_cast<int64_t>(mapped->bytes().size()) - file.data_begin();
  // Another process may have replaced the file since.
  if (file.entries().back().end > size)
    return Error(Diag::kData, "`{}` became shorter while it was opened", path);
  auto bytes_of = [&](const SafetensorsFile::Entry& of) {
    return mapped->bytes().substr(static_cast<size_t>(file.data_begin() + of.begin),
                                  static_cast<size_t>(of.end - of.begin));
  };
  TokenSegment segment;
  segment.name = path;
  segment.bytes = bytes_of(*entry);
  segment.type = *TypeOf(entry->dtype);
  if (const SafetensorsFile::Entry* mask = file.Find(kMask)) {
    HEDDLE_RETURN_IF_ERROR(CheckMaskEntry(file, *mask, *entry));
    segment.mask = bytes_of(*mask);
  }
  if (const SafetensorsFile::Entry* lengths = file.Find(kLengths)) {
    HEDDLE_TRY(std::vector<int64_t> ends,
               DocumentEnds(file, *lengths, bytes_of(*lengths), segment.stored()));
    SetDocuments(std::move(ends), segment);
    segment.index = mapped;
  }
  segment.file = std::move(mapped);
  return segment;
}

}  // namespace heddle::run
