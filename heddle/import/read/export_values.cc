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

// A constant, as Python calls it.
std::string_view Constant(std::string_view tag, JsonElement e) {
  int64_t code = JsonInt(e).value_or(-1);
  if (tag == "as_scalar_type") {
    const DTypeCode* dtype = FindDType(code);
    return dtype == nullptr ? "torch.unknown" : dtype->word;
  }
  if (tag == "as_memory_format") {
    return code == 1   ? "torch.contiguous_format"
           : code == 2 ? "torch.channels_last"
                       : "torch.preserve_format";
  }
  if (tag == "as_device") return JsonTextField(e, "type") == "cpu" ? "cpu" : "device";
  return "torch.strided";
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
  size_t word = program_.words.Intern(name).index();
  if (word >= types_.size()) types_.resize(word + 1);
  if (types_[word] == nullptr)
    types_[word] = &program_.types.emplace_back(Type::Tensor(dtype->dtype, std::move(dims)));
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
    if (std::optional<int64_t> number = Size(value))
      sizes_.emplace(program_.words.Intern(name).index(), *number);
  }
  return Done{};
}

const Type* ExportValues::TypeOf(WordId name) const {
  return name.index() < types_.size() ? types_[name.index()] : nullptr;
}

std::optional<int64_t> ExportValues::SizeOf(WordId name) const {
  auto at = sizes_.find(name.index());
  return at == sizes_.end() ? std::nullopt : std::optional(at->second);
}

Result<ForeignValue> ExportValues::Name(std::string_view name) {
  bool good = !name.empty() && std::ranges::all_of(name, [](char c) {
    return (kCharClasses[static_cast<unsigned char>(c)] & CharClass::kName) != 0;
  });
  if (!good) return Fail("{} is not a name of a value", Quoted(name));
  return ForeignValue{.kind = Kind::kName, .word = program_.Word(name)};
}

// A value without a tag: what lists hold.
Result<ForeignValue> ExportValues::Plain(JsonElement e, int depth) {
  switch (e.type()) {
    case element_type::NULL_VALUE: return ForeignValue();
    case element_type::BOOL: return ForeignValue{.kind = Kind::kBool, .boolean = bool(e)};
    case element_type::INT64: return ForeignValue{.kind = Kind::kInt, .integer = int64_t(e)};
    case element_type::DOUBLE: return ForeignValue{.kind = Kind::kFloat, .number = double(e)};
    case element_type::STRING:
      return ForeignValue{.kind = Kind::kString, .word = program_.Word(JsonText(e))};
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
  size_t begin = open_items_.size();
  for (JsonElement item : list) {
    HEDDLE_TRY(ForeignValue value, Plain(item, depth + 1));
    open_items_.push_back(value);
  }
  return program_.TakeList(Kind::kList, open_items_, begin);
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
    return ForeignValue{.kind = Kind::kWord, .word = program_.Word(Constant(tag, value))};
  if (tag == "as_sym_int" || tag == "as_sym_bool" || tag == "as_sym_float" ||
      tag == "as_optional_tensor")
    return Argument(value, depth + 1);
  if (tag == "as_int" || tag == "as_bool" || tag == "as_string") return Plain(value, depth);
  if (value.is_array()) return Items(value, depth);
  // A graph, an object, a number of two parts: nothing that a graph of Heddle holds.
  return ForeignValue{.kind = Kind::kWord, .word = program_.Word("torch.object")};
}

}  // namespace heddle
