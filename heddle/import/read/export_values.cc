#include "heddle/import/read/export_values.h"

#include <algorithm>
#include <limits>

#include "heddle/base/scanner.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

using simdjson::dom::array;
using simdjson::dom::element_type;
using simdjson::dom::object;
using Kind = ForeignValue::Kind;

constexpr int kDeepest = 16;

struct DTypeCode {
  int64_t code;
  DType dtype;
  std::string_view word;
};
constexpr DTypeCode kDTypeCodes[] = {
    {1, DType::kU8, "torch.uint8"},
    {2, DType::kI8, "torch.int8"},
    {3, DType::kI16, "torch.int16"},
    {4, DType::kI32, "torch.int32"},
    {5, DType::kI64, "torch.int64"},
    {6, DType::kF16, "torch.float16"},
    {7, DType::kF32, "torch.float32"},
    {8, DType::kF64, "torch.float64"},
    {10, DType::kC64, "torch.complex64"},
    {11, DType::kC128, "torch.complex128"},
    {12, DType::kBool, "torch.bool"},
    {13, DType::kBF16, "torch.bfloat16"},
    {29, DType::kF8E4M3, "torch.float8_e4m3fn"},
    {30, DType::kF8E5M2, "torch.float8_e5m2"},
    {35, DType::kU64, "torch.uint64"},
};

const DTypeCode* FindDType(int64_t code) {
  auto at = std::ranges::find(kDTypeCodes, code, &DTypeCode::code);
  return at == std::end(kDTypeCodes) ? nullptr : at;
}

// A size: a number, or an expression with the number that it had when the program was made.
std::optional<int64_t> Size(JsonElement e) {
  if (std::optional<JsonElement> number = JsonField(e, "as_int")) return JsonInt(*number);
  std::optional<JsonElement> expression = JsonField(e, "as_expr");
  std::optional<JsonElement> hint = expression ? JsonField(*expression, "hint") : std::nullopt;
  std::optional<JsonElement> number = hint ? JsonField(*hint, "as_int") : std::nullopt;
  return number ? JsonInt(*number) : std::nullopt;
}

double Number(JsonElement e) {
  double number = 0;
  if (e.get(number) == simdjson::SUCCESS) return number;
  std::string_view text = JsonText(e);
  double infinity = std::numeric_limits<double>::infinity();
  return text == "Infinity"    ? infinity
         : text == "-Infinity" ? -infinity
                               : std::numeric_limits<double>::quiet_NaN();
}

ForeignValue Word(std::string_view tag, JsonElement e) {
  ForeignValue value{.kind = Kind::kWord};
  int64_t code = JsonInt(e).value_or(-1);
  if (tag == "as_scalar_type") {
    const DTypeCode* dtype = FindDType(code);
    value.text = dtype == nullptr ? "torch.unknown" : dtype->word;
  } else if (tag == "as_memory_format") {
    value.text = code == 1   ? "torch.contiguous_format"
                 : code == 2 ? "torch.channels_last"
                             : "torch.preserve_format";
  } else if (tag == "as_device") {
    value.text = JsonTextField(e, "type") == "cpu" ? "cpu" : "device";
  } else {
    value.text = "torch.strided";
  }
  return value;
}

}  // namespace

std::optional<JsonElement> JsonField(JsonElement e, std::string_view name) {
  JsonElement value;
  if (e[name].get(value) != simdjson::SUCCESS || value.is_null()) return std::nullopt;
  return value;
}

std::optional<int64_t> JsonInt(JsonElement e) {
  int64_t number = 0;
  return e.get(number) == simdjson::SUCCESS ? std::optional(number) : std::nullopt;
}

std::string_view JsonText(JsonElement e) {
  std::string_view text;
  return e.get(text) == simdjson::SUCCESS ? text : std::string_view();
}

std::string_view JsonTextField(JsonElement e, std::string_view name) {
  std::optional<JsonElement> field = JsonField(e, name);
  return field ? JsonText(*field) : std::string_view();
}

std::optional<std::pair<std::string_view, JsonElement>> JsonTagged(JsonElement e) {
  object fields;
  if (e.get(fields) != simdjson::SUCCESS) return std::nullopt;
  std::optional<std::pair<std::string_view, JsonElement>> found;
  for (auto [key, value] : fields) {
    if (!found || (found->second.is_null() && !value.is_null())) found = {key, value};
  }
  return found;
}

Status ExportValues::ReadTensor(std::string_view name, JsonElement meta) {
  std::optional<JsonElement> code = JsonField(meta, "dtype");
  const DTypeCode* dtype = code ? FindDType(JsonInt(*code).value_or(-1)) : nullptr;
  if (dtype == nullptr)
    return Fail("tensor `{}` has an element type that Heddle does not have", name);
  std::optional<JsonElement> sizes = JsonField(meta, "sizes");
  array list;
  if (!sizes || sizes->get(list) != simdjson::SUCCESS)
    return Fail("tensor `{}` has no `sizes`", name);
  Dims dims;
  for (JsonElement size : list) {
    std::optional<int64_t> number = Size(size);
    if (!number || *number < 0)
      return Fail("tensor `{}` has a size without a number or a hint", name);
    dims.push_back(*number);
  }
  if (!CheckedBytes(SymbolTable(), dims, dtype->dtype))
    return Fail("tensor `{}` exceeds 2^63 bytes", name);
  types_.emplace(Keep(name), Type::Tensor(dtype->dtype, std::move(dims)));
  return Done{};
}

Status ExportValues::Read(JsonElement graph) {
  object tensors;
  std::optional<JsonElement> given = JsonField(graph, "tensor_values");
  if (!given || given->get(tensors) != simdjson::SUCCESS)
    return Fail("the graph has no `tensor_values`");
  for (auto [name, meta] : tensors) HEDDLE_RETURN_IF_ERROR(ReadTensor(name, meta));
  object numbers;
  std::optional<JsonElement> sizes = JsonField(graph, "sym_int_values");
  if (!sizes || sizes->get(numbers) != simdjson::SUCCESS) return Done{};
  for (auto [name, value] : numbers) {
    if (std::optional<int64_t> number = Size(value)) sizes_.emplace(Keep(name), *number);
  }
  return Done{};
}

std::optional<Type> ExportValues::TypeOf(std::string_view name) const {
  auto at = types_.find(name);
  return at == types_.end() ? std::nullopt : std::optional(at->second);
}

std::optional<int64_t> ExportValues::SizeOf(std::string_view name) const {
  auto at = sizes_.find(name);
  return at == sizes_.end() ? std::nullopt : std::optional(at->second);
}

ForeignValue ExportValues::List(const std::vector<ForeignValue>& items) {
  ForeignValue list{.kind = Kind::kList};
  list.first = static_cast<uint32_t>(program_.values.size());
  list.count = static_cast<uint32_t>(items.size());
  program_.values.insert(program_.values.end(), items.begin(), items.end());
  return list;
}

Result<ForeignValue> ExportValues::Name(std::string_view name) {
  bool good = !name.empty() && std::ranges::all_of(name, [](char c) {
    return (kCharClasses[static_cast<unsigned char>(c)] & CharClass::kName) != 0;
  });
  if (!good) return Fail("{} is not a name of a value", Quoted(name));
  return ForeignValue{.kind = Kind::kName, .text = Keep(name)};
}

// A value without a tag: what lists hold.
Result<ForeignValue> ExportValues::Plain(JsonElement e, int depth) {
  switch (e.type()) {
    case element_type::NULL_VALUE: return ForeignValue();
    case element_type::BOOL: return ForeignValue{.kind = Kind::kBool, .boolean = bool(e)};
    case element_type::INT64: return ForeignValue{.kind = Kind::kInt, .integer = int64_t(e)};
    case element_type::DOUBLE: return ForeignValue{.kind = Kind::kFloat, .number = double(e)};
    case element_type::STRING:
      return ForeignValue{.kind = Kind::kString, .text = Keep(JsonText(e))};
    case element_type::OBJECT: {
      std::string_view name = JsonTextField(e, "name");
      if (!name.empty()) return Name(name);
      return Argument(e, depth);
    }
    case element_type::ARRAY: return Items(e, depth);
    default: return Fail("a number exceeds 64 bits");
  }
}

Result<ForeignValue> ExportValues::Items(JsonElement e, int depth) {
  if (depth > kDeepest) return Fail("an argument is nested more than {} deep", kDeepest);
  array list;
  if (e.get(list) != simdjson::SUCCESS) return Fail("an argument is not a list");
  std::vector<ForeignValue> items;
  for (JsonElement item : list) {
    HEDDLE_TRY(ForeignValue value, Plain(item, depth + 1));
    items.push_back(value);
  }
  return List(items);
}

Result<ForeignValue> ExportValues::Argument(JsonElement e, int depth) {
  auto tagged = JsonTagged(e);
  if (depth > kDeepest || !tagged) return Fail("an argument is not one of the kinds that exist");
  auto [tag, value] = *tagged;
  if (tag == "as_none" || value.is_null()) return ForeignValue();
  if (tag == "as_name") return Name(JsonText(value));
  if (tag == "as_tensor") return Name(JsonTextField(value, "name"));
  if (tag == "as_float") return ForeignValue{.kind = Kind::kFloat, .number = Number(value)};
  if (tag == "as_scalar_type" || tag == "as_memory_format" || tag == "as_layout" ||
      tag == "as_device")
    return Word(tag, value);
  if (tag == "as_sym_int" || tag == "as_sym_bool" || tag == "as_sym_float" ||
      tag == "as_optional_tensor")
    return Argument(value, depth + 1);
  if (tag == "as_int" || tag == "as_bool" || tag == "as_string") return Plain(value, depth);
  if (value.is_array()) return Items(value, depth);
  // A graph, an object, a number of two parts: nothing that a graph of Heddle holds.
  return ForeignValue{.kind = Kind::kWord, .text = "torch.object"};
}

}  // namespace heddle
