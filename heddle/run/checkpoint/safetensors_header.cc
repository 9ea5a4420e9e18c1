#include "heddle/run/checkpoint/safetensors_header.h"

#include <algorithm>

#include "heddle/core/base/json_fields.h"

namespace heddle::run {
namespace {

using Entry = SafetensorsFile::Entry;

struct TypeName {
  DType dtype;
  std::string_view name;
};
constexpr TypeName kTypes[] = {
    {DType::kF64, "F64"}, {DType::kF32, "F32"},   {DType::kBF16, "BF16"}, {DType::kF16, "F16"},
    {DType::kI64, "I64"}, {DType::kI32, "I32"},   {DType::kI16, "I16"},   {DType::kI8, "I8"},
    {DType::kU8, "U8"},   {DType::kBool, "BOOL"},
};

Failure HeaderError(std::string what) { return Error(Diag::kFileRead, "{}", what); }

Status CheckBytes(const Entry& entry, int64_t data_bytes) {
  if (entry.begin > entry.end || entry.end > data_bytes)
    return HeaderError(fmt::format("`{}` has bytes {} to {} of {}", entry.name, entry.begin,
                                   entry.end, data_bytes));
  int64_t bytes = ItemSize(entry.dtype);
  for (int64_t size : entry.shape) {
    if (__builtin_mul_overflow(bytes, size, &bytes))
      return HeaderError(fmt::format("`{}` has a shape of more than 2^63 bytes", entry.name));
  }
  if (bytes == entry.end - entry.begin) return Done{};
  return HeaderError(fmt::format("`{}` has {} bytes, {} to {}; its shape and dtype make {}",
                                 entry.name, entry.end - entry.begin, entry.begin, entry.end,
                                 bytes));
}

Entry ParseEntry(std::string_view name, JsonValue tensor, JsonMistakes& mistakes) {
  std::vector<std::string_view> types;
  for (const TypeName& known : kTypes) types.push_back(known.name);
  JsonFields fields(tensor, mistakes);
  Entry entry;
  entry.name = name;
  entry.dtype = kTypes[fields.Choice("dtype", types)].dtype;
  entry.shape = fields.Counts("shape");
  std::vector<int64_t> offsets = fields.Counts("data_offsets");
  if (offsets.size() == 2) {
    entry.begin = offsets[0];
    entry.end = offsets[1];
  } else if (mistakes.empty()) {
    fields.Wrong("data_offsets", "has {} numbers, expected 2", offsets.size());
  }
  fields.Finish();
  return entry;
}

void CheckMetadata(JsonValue metadata, JsonMistakes& mistakes) {
  JsonFields fields(metadata, mistakes);
  for (const auto& [name, value] : fields.fields()) fields.Text(name);
}

// Checks that every byte belongs to exactly one tensor.
Status CheckCovered(std::span<const Entry> entries, int64_t data_bytes) {
  int64_t covered = 0;
  std::string_view before;
  for (const Entry& entry : entries) {
    if (entry.begin < covered)
      return HeaderError(fmt::format("`{}` begins at byte {}, and `{}` ends at {}; they overlap",
                                     entry.name, entry.begin, before, covered));
    if (entry.begin > covered)
      return HeaderError(fmt::format("bytes {} to {}, before `{}`, belong to no tensor", covered,
                                     entry.begin, entry.name));
    covered = entry.end;
    before = entry.name;
  }
  if (covered == data_bytes) return Done{};
  return HeaderError(
      fmt::format("has {} bytes after its header, but its tensors end at {}", data_bytes, covered));
}

}  // namespace

std::optional<std::string_view> SafetensorsTypeName(DType dtype) {
  for (const TypeName& known : kTypes) {
    if (known.dtype == dtype) return known.name;
  }
  return std::nullopt;
}

std::optional<DType> ParseSafetensorsType(std::string_view name) {
  for (const TypeName& known : kTypes) {
    if (known.name == name) return known.dtype;
  }
  return std::nullopt;
}

Result<std::vector<Entry>> ParseSafetensorsHeader(std::string_view header, int64_t data_bytes) {
  HEDDLE_TRY(JsonDocument document, JsonDocument::Parse(std::string(header), "", Diag::kFileRead));
  JsonMistakes mistakes(document, Diag::kFileRead);
  std::vector<Entry> entries;
  JsonFields fields(document.root(), mistakes);
  for (const auto& [name, tensor] : fields.fields()) {
    if (name == "__metadata__") {
      CheckMetadata(tensor, mistakes);
    } else {
      entries.push_back(ParseEntry(name, tensor, mistakes));
    }
    if (!mistakes.empty()) return mistakes.failure();
    if (name != "__metadata__") HEDDLE_RETURN_IF_ERROR(CheckBytes(entries.back(), data_bytes));
  }
  if (!mistakes.empty()) return mistakes.failure();
  // Sorts an empty tensor before the tensor that begins at the same byte.
  std::ranges::stable_sort(entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  HEDDLE_RETURN_IF_ERROR(CheckCovered(entries, data_bytes));
  return entries;
}

}  // namespace heddle::run
