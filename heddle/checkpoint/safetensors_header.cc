#include "heddle/checkpoint/safetensors_header.h"

#include <algorithm>

#include "heddle/base/text.h"
#include "heddle/checkpoint/json.h"

namespace heddle {
namespace {

using Entry = SafetensorsFile::Entry;
using Json = nlohmann::json;

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

// A list of whole numbers that are not negative.
Result<std::vector<int64_t>> Numbers(const std::string& name, const Json& tensor, const char* key) {
  auto list = tensor.find(key);
  if (list == tensor.end() || !list->is_array())
    return HeaderError(fmt::format("`{}` has no list `{}`", name, key));
  std::vector<int64_t> numbers;
  for (const Json& item : *list) {
    if (!item.is_number_unsigned() || item.get<uint64_t>() > INT64_MAX)
      return HeaderError(
          fmt::format("`{}` has {} among its `{}`, expected a whole number of 0 or more", name,
                      item.dump(-1, ' ', false, Json::error_handler_t::replace), key));
    numbers.push_back(item.get<int64_t>());
  }
  return numbers;
}

Result<DType> TypeOf(const std::string& name, const Json& tensor) {
  auto type = tensor.find("dtype");
  if (type == tensor.end() || !type->is_string())
    return HeaderError(fmt::format("`{}` has no `dtype`", name));
  if (auto known = ParseSafetensorsType(type->get_ref<const std::string&>())) return *known;
  std::vector<std::string_view> names;
  for (const TypeName& known : kTypes) names.push_back(known.name);
  return HeaderError(fmt::format("`{}` has dtype `{}`; there are {}", name,
                                 type->get<std::string>(), Join(names, ", ")));
}

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

Result<Entry> ParseEntry(const std::string& name, const Json& tensor, int64_t data_bytes) {
  if (!tensor.is_object()) return HeaderError(fmt::format("`{}` is no JSON object", name));
  for (const auto& [key, value] : tensor.items()) {
    if (key != "dtype" && key != "shape" && key != "data_offsets")
      return HeaderError(fmt::format("`{}` has `{}`, which no tensor has", name, key));
  }
  Entry entry;
  entry.name = name;
  HEDDLE_TRY(entry.dtype, TypeOf(name, tensor));
  HEDDLE_TRY(entry.shape, Numbers(name, tensor, "shape"));
  HEDDLE_TRY(std::vector<int64_t> offsets, Numbers(name, tensor, "data_offsets"));
  if (offsets.size() != 2)
    return HeaderError(fmt::format("`{}` has {} `data_offsets`, expected 2", name, offsets.size()));
  entry.begin = offsets[0];
  entry.end = offsets[1];
  HEDDLE_RETURN_IF_ERROR(CheckBytes(entry, data_bytes));
  return entry;
}

Status CheckMetadata(const Json& metadata) {
  bool strings = metadata.is_object() &&
                 std::ranges::all_of(metadata, [](const Json& value) { return value.is_string(); });
  if (strings) return Done{};
  return HeaderError("`__metadata__` is not made of texts by name");
}

// Every byte belongs to one tensor.
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
      fmt::format("has {} bytes behind its header; its tensors end at {}", data_bytes, covered));
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
  HEDDLE_TRY(Json parsed, ParseJsonStrictly(header, "its header", /*most_depth=*/3));
  std::vector<Entry> entries;
  for (const auto& [name, tensor] : parsed.items()) {
    if (name == "__metadata__") {
      HEDDLE_RETURN_IF_ERROR(CheckMetadata(tensor));
      continue;
    }
    HEDDLE_TRY(Entry entry, ParseEntry(name, tensor, data_bytes));
    entries.push_back(std::move(entry));
  }
  // Empty tensors stand before what begins at the same byte.
  std::ranges::stable_sort(entries, [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  HEDDLE_RETURN_IF_ERROR(CheckCovered(entries, data_bytes));
  return entries;
}

}  // namespace heddle
