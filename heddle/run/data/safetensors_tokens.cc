// Tokens in a safetensors file: its only list of integers, or the list named `tokens`.
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

Result<const SafetensorsFile::Entry*> FindTokens(const SafetensorsFile& file) {
  const SafetensorsFile::Entry* found = nullptr;
  int64_t lists = 0;
  for (const SafetensorsFile::Entry& entry : file.entries()) {
    if (entry.shape.size() != 1 || !TypeOf(entry.dtype)) continue;
    if (entry.name == "tokens") return &entry;
    found = &entry;
    ++lists;
  }
  if (lists == 1) return found;
  return Error(Diag::kData,
               "`{}` has {} of integers among its {}; keep one list, or name it `tokens`",
               file.path(), Counted(lists, "list"), Counted(file.entries().size(), "tensor"));
}

}  // namespace

Result<TokenSegment> OpenSafetensorsTokens(const std::string& path) {
  HEDDLE_TRY(SafetensorsFile file, SafetensorsFile::Open(path));
  HEDDLE_TRY(const SafetensorsFile::Entry* entry, FindTokens(file));
  HEDDLE_TRY(auto mapped, MappedFile::Open(path));
  int64_t size = static_cast<int64_t>(mapped->bytes().size()) - file.data_begin();
  // Another process may have replaced the file since.
  if (entry->end > size) return Error(Diag::kData, "`{}` became shorter while it was opened", path);
  TokenSegment segment;
  segment.name = path;
  segment.bytes = mapped->bytes().substr(static_cast<size_t>(file.data_begin() + entry->begin),
                                         static_cast<size_t>(entry->end - entry->begin));
  segment.type = *TypeOf(entry->dtype);
  segment.file = std::move(mapped);
  return segment;
}

}  // namespace heddle::run
