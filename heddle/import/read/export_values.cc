#include "heddle/import/read/export_values.h"

#include <algorithm>
#include <limits>

#include "heddle/core/base/scanner.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;

constexpr int kDeepestArgument = 16;

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

const DTypeCode* FindDType(std::optional<JsonValue> code) {
  if (!code || !code->is_int()) return nullptr;
  auto at = std::ranges::find(kDTypeCodes, code->integer(), &DTypeCode::code);
  return at == std::end(kDTypeCodes) ? nullptr : at;
}

// A size: `{"as_int": 8}`, or an expression with its value at export time.
std::optional<int64_t> SizeIn(JsonValue e) {
  std::optional<JsonValue> number = e.Find("as_int");
  if (std::optional<JsonValue> expression = e.Find("as_expr"); !number && expression) {
    std::optional<JsonValue> hint = expression->Find("hint");
    if (hint) number = hint->Find("as_int");
  }
  if (!number || !number->is_int()) return std::nullopt;
  return number->integer();
}

ForeignValue Truth(bool truth) {
  ForeignValue value;
  value.kind = Kind::kBool;
  value.boolean = truth;
  return value;
}

}  // namespace

bool IsValueName(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return (kCharClasses[static_cast<unsigned char>(c)] & CharClass::kName) != 0;
  });
}

// --- Types

Status ExportValues::ReadTensors(JsonValue tensors) {
  for (auto [name, meta] : tensors.fields()) {
    HEDDLE_TRY(Type type, ReadType(name, meta));
    types_.emplace(program_.words.Intern(name).index(),
                   &program_.types.emplace_back(std::move(type)));
  }
  return Done{};
}

Result<Type> ExportValues::ReadType(std::string_view name, JsonValue meta) const {
  if (!meta.is_object()) return document_.Fail(meta, "tensor `{}` is not an object", name);
  std::optional<JsonValue> code = meta.Find("dtype");
  const DTypeCode* dtype = FindDType(code);
  if (dtype == nullptr)
    return document_.Fail(code.value_or(meta),
                          "tensor `{}` has an element type that Heddle does not support", name);
  std::optional<JsonValue> sizes = meta.Find("sizes");
  if (!sizes || !sizes->is_array())
    return document_.Fail(sizes.value_or(meta), "tensor `{}` has no `sizes`", name);
  Dims dims;
  for (JsonValue item : sizes->items()) {
    std::optional<int64_t> size = SizeIn(item);
    if (!size || *size < 0)
      return document_.Fail(item, "tensor `{}` has a size without a number or a hint", name);
    dims.push_back(*size);
  }
  if (!CheckedBytes(SymbolTable(), dims, dtype->dtype))
    return document_.Fail(meta, "tensor `{}` exceeds 2^63 bytes", name);
  return Type::Tensor(dtype->dtype, std::move(dims));
}

void ExportValues::ReadSizes(JsonValue sizes) {
  for (auto [name, value] : sizes.fields()) {
    if (std::optional<int64_t> size = SizeIn(value))
      sizes_.emplace(program_.words.Intern(name).index(), *size);
  }
}

const Type* ExportValues::TypeOf(WordId name) const {
  auto at = name ? types_.find(name.index()) : types_.end();
  return at == types_.end() ? nullptr : at->second;
}

std::optional<int64_t> ExportValues::SizeOf(WordId name) const {
  auto at = sizes_.find(name.index());
  return at == sizes_.end() ? std::nullopt : std::optional(at->second);
}

// --- Arguments

Result<ForeignValue> ExportValues::Name(JsonValue e) {
  if (!e.is_string() || !IsValueName(e.string()))
    return document_.Fail(e, "{} is not a name of a value",
                          e.is_string() ? Quoted(e.string()) : std::string(Describe(e)));
  // After the quote.
  name_place_ = e.offset() + 1;
  return ForeignValue::Of(Kind::kName, program_.words.Intern(e.string()));
}

Result<ForeignValue> ExportValues::Plain(JsonValue e, int depth) {
  switch (e.kind()) {
    case JsonValue::Kind::kNull: return ForeignValue();
    case JsonValue::Kind::kBool: return Truth(e.boolean());
    case JsonValue::Kind::kInt: return ForeignValue{.kind = Kind::kInt, .integer = e.integer()};
    case JsonValue::Kind::kFloat: return ForeignValue{.kind = Kind::kFloat, .number = e.number()};
    case JsonValue::Kind::kString:
      return ForeignValue::Of(Kind::kString, program_.Word(e.string()));
    case JsonValue::Kind::kArray: return Items(e, depth);
    case JsonValue::Kind::kObject: break;
  }
  std::optional<JsonValue> name = e.Find("name");
  return name && name->is_string() ? Name(*name) : Tagged(e, depth);
}

// JSON has no literals for infinities and NaN, so they are strings.
Result<ForeignValue> ExportValues::Float(JsonValue e) const {
  ForeignValue value;
  value.kind = Kind::kFloat;
  value.number = std::numeric_limits<double>::quiet_NaN();
  if (e.is_number()) {
    value.number = e.number();
  } else if (e.is_string()) {
    if (e.string() == "Infinity") value.number = std::numeric_limits<double>::infinity();
    if (e.string() == "-Infinity") value.number = -std::numeric_limits<double>::infinity();
  } else if (!e.is_null()) {
    return document_.Fail(e, "`as_float` is {}, expected a number", Describe(e));
  }
  return value;
}

ForeignValue ExportValues::Constant(std::string_view tag, JsonValue e) {
  std::string_view word = "torch.strided";
  int64_t code = e.is_int() ? e.integer() : -1;
  if (tag == "as_device") {
    std::optional<JsonValue> type = e.Find("type");
    word = type && type->is_string() && type->string() == "cpu" ? "cpu" : "device";
  } else if (tag == "as_scalar_type") {
    const DTypeCode* dtype = FindDType(e);
    word = dtype == nullptr ? "torch.unknown" : dtype->word;
  } else if (tag == "as_memory_format") {
    word = code == 1   ? "torch.contiguous_format"
           : code == 2 ? "torch.channels_last"
                       : "torch.preserve_format";
  }
  return ForeignValue::Of(Kind::kWord, program_.Word(word));
}

Result<ForeignValue> ExportValues::Items(JsonValue list, int depth) {
  if (depth > kDeepestArgument)
    return document_.Fail(list, "an argument is nested more than {} levels deep", kDeepestArgument);
  std::vector<ForeignValue> items;
  for (JsonValue item : list.items()) {
    HEDDLE_TRY(ForeignValue value, Plain(item, depth + 1));
    items.push_back(value);
  }
  return program_.TakeList(Kind::kList, items, 0);
}

Result<ForeignValue> ExportValues::Tagged(JsonValue e, int depth) {
  if (depth > kDeepestArgument || e.fields().empty())
    return document_.Fail(e, "an argument has an unknown kind");
  for (auto [tag, field] : e.fields()) {
    if (!field.is_null()) return Untag(tag, field, depth);
  }
  return ForeignValue();
}

Result<ForeignValue> ExportValues::Untag(std::string_view tag, JsonValue e, int depth) {
  if (tag == "as_tensor") {
    std::optional<JsonValue> name = e.Find("name");
    if (!name) return document_.Fail(e, "a tensor has no `name`");
    return Name(*name);
  }
  if (tag == "as_name") return Name(e);
  if (tag == "as_int" || tag == "as_bool" || tag == "as_string") return Plain(e, depth);
  if (tag == "as_none") return ForeignValue();
  if (tag == "as_float") return Float(e);
  if (tag == "as_scalar_type" || tag == "as_memory_format" || tag == "as_layout" ||
      tag == "as_device")
    return Constant(tag, e);
  if (tag == "as_sym_int" || tag == "as_sym_bool" || tag == "as_sym_float" ||
      tag == "as_optional_tensor")
    return Tagged(e, depth + 1);
  if (e.is_array()) return Items(e, depth);
  // A graph, an object or a complex number, which Heddle's graphs cannot store.
  return ForeignValue::Of(Kind::kWord, program_.Word("torch.object"));
}

}  // namespace heddle
