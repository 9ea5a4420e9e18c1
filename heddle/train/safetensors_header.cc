#include "heddle/train/safetensors_header.h"

#include <algorithm>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "heddle/base/text.h"

namespace heddle {
namespace {

using Entry = SafetensorsFile::Entry;
// Not the ordered kind, which takes quadratic time for many names.
using Json = nlohmann::json;

struct TypeName {
  at::ScalarType type;
  std::string_view name;
};
constexpr TypeName kTypes[] = {
    {at::kDouble, "F64"}, {at::kFloat, "F32"}, {at::kBFloat16, "BF16"}, {at::kHalf, "F16"},
    {at::kLong, "I64"},   {at::kInt, "I32"},   {at::kShort, "I16"},     {at::kChar, "I8"},
    {at::kByte, "U8"},    {at::kBool, "BOOL"},
};

Failure HeaderError(std::string what) { return Error(Diag::kFileRead, "{}", what); }

// JSON keeps the last of two equal keys; here they are a lie. The parser calls this for every key, with the depth of its object.
class KeysOnce {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    if (event == Json::parse_event_t::object_start) {
      if (static_cast<size_t>(depth) >= keys_.size()) keys_.resize(static_cast<size_t>(depth) + 1);
      keys_[static_cast<size_t>(depth)].clear();
    }
    if (event == Json::parse_event_t::key) {
      const std::string& key = parsed.get_ref<const std::string&>();
      if (!keys_[static_cast<size_t>(depth) - 1].insert(key).second && twice_.empty()) twice_ = key;
    }
    // Nothing in a header is deeper, and what is deep may be very deep.
    if (depth > 3) too_deep_ = true;
    return !too_deep_;
  }
  const std::string& twice() const { return twice_; }
  bool too_deep() const { return too_deep_; }

 private:
  std::vector<std::unordered_set<std::string>> keys_;
  std::string twice_;
  bool too_deep_ = false;
};

Result<Json> ParseJson(std::string_view header) {
  KeysOnce keys;
  Json parsed;
  try {
    parsed = Json::parse(header.begin(), header.end(), std::ref(keys));
  } catch (const Json::parse_error& error) {
    return HeaderError(
        fmt::format("its header is no JSON at byte {} of {}", error.byte, header.size()));
  }
  if (keys.too_deep())
    return HeaderError("its header has values inside of values; it is no list of tensors");
  if (!keys.twice().empty())
    return HeaderError(fmt::format("its header has `{}` twice", keys.twice()));
  if (!parsed.is_object()) return HeaderError("its header is no JSON object");
  return parsed;
}

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

Result<at::ScalarType> TypeOf(const std::string& name, const Json& tensor) {
  auto type = tensor.find("dtype");
  if (type == tensor.end() || !type->is_string())
    return HeaderError(fmt::format("`{}` has no `dtype`", name));
  std::vector<std::string_view> names;
  for (const TypeName& known : kTypes) {
    if (known.name == type->get_ref<const std::string&>()) return known.type;
    names.push_back(known.name);
  }
  return HeaderError(fmt::format("`{}` has dtype `{}`; there are {}", name,
                                 type->get<std::string>(), Join(names, ", ")));
}

Status CheckBytes(const Entry& entry, int64_t data_bytes) {
  if (entry.begin > entry.end || entry.end > data_bytes)
    return HeaderError(fmt::format("`{}` has bytes {} to {} of {}", entry.name, entry.begin,
                                   entry.end, data_bytes));
  auto bytes = static_cast<int64_t>(c10::elementSize(entry.type));
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
  HEDDLE_TRY(entry.type, TypeOf(name, tensor));
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

std::optional<std::string_view> SafetensorsTypeName(at::ScalarType type) {
  for (const TypeName& known : kTypes) {
    if (known.type == type) return known.name;
  }
  return std::nullopt;
}

Result<std::vector<Entry>> ParseSafetensorsHeader(std::string_view header, int64_t data_bytes) {
  HEDDLE_TRY(Json parsed, ParseJson(header));
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
