#include "heddle/import/read/export_values.h"

#include <algorithm>
#include <limits>

#include "heddle/base/scanner.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

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

const DTypeCode* FindDType(int64_t code) {
  auto at = std::ranges::find(kDTypeCodes, code, &DTypeCode::code);
  return at == std::end(kDTypeCodes) ? nullptr : at;
}

bool IsNameChar(char c) {
  return (kCharClasses[static_cast<unsigned char>(c)] & CharClass::kName) != 0;
}

// --- Texts that are to the letter as torch.export writes them. Most are, and need no walk through their fields.

constexpr char kTensorBegin[] = R"({"as_tensor": {"name": ")";
constexpr char kTensorEnd[] = R"("}})";

// Whether `text` begins with these words. Quicker than `starts_with`, as IsKey is.
template <size_t kSize>
bool Begins(std::string_view text, const char (&words)[kSize]) {
  return text.size() >= kSize - 1 && std::memcmp(text.data(), words, kSize - 1) == 0;
}

// The name between two words at the front of `text`, all of which is taken; empty where it does not stand there.
template <size_t kBegin, size_t kEnd>
std::string_view TakeName(std::string_view& text, const char (&begin)[kBegin],
                          const char (&end)[kEnd]) {
  if (!Begins(text, begin)) return {};
  std::string_view rest = text.substr(kBegin - 1);
  size_t size = 0;
  while (size < rest.size() && IsNameChar(rest[size])) ++size;
  if (!Begins(rest.substr(size), end)) return {};
  text = rest.substr(size + kEnd - 1);
  return rest.substr(0, size);
}

}  // namespace

// --- Types

bool ExportValues::ReadTensors(JsonValue tensors) {
  return walk_.Fields(
      tensors, [&](std::string_view name, JsonValue meta) { return ReadTensor(name, meta); });
}

bool ExportValues::ReadTensor(std::string_view name, JsonValue meta) {
  size_t place = walk_.Place(meta);
  if (!JsonWalk::IsObject(meta)) return walk_.Fail(place, "tensor `{}` is not an object", name);
  simdjson::ondemand::object object;
  std::string_view text;
  if (meta.get_object().get(object) != simdjson::SUCCESS ||
      object.raw_json().get(text) != simdjson::SUCCESS)
    return false;
  const Type* type = nullptr;
  // A text that came before was good.
  if (Id<MetaTag> known = metas_.Find(text)) {
    type = meta_types_[known.index()];
  } else {
    bool some = false;
    if (object.reset().get(some) != simdjson::SUCCESS || !ReadType(name, place, object, type))
      return false;
    metas_.Intern(text);
    meta_types_.push_back(type);
  }
  size_t word = NameWord(name).index();
  if (word >= types_.size()) types_.resize(std::max(word + 1, 2 * types_.size()));
  if (types_[word] == nullptr) types_[word] = type;
  return true;
}

bool ExportValues::ReadType(std::string_view name, size_t place, simdjson::ondemand::object& meta,
                            const Type*& type) {
  const DTypeCode* dtype = nullptr;
  bool has_dtype = false;
  bool has_sizes = false;
  Dims dims;
  bool good = walk_.EachField(meta, [&](std::string_view key, JsonValue field) {
    if (IsKey(key, "dtype") && !has_dtype) {
      has_dtype = true;
      size_t at = walk_.Place(field);
      std::optional<int64_t> code;
      if (!walk_.Int(field, code)) return false;
      dtype = FindDType(code.value_or(-1));
      return dtype != nullptr ||
             walk_.Fail(at, "tensor `{}` has an element type that Heddle does not have", name);
    }
    if (IsKey(key, "sizes") && !has_sizes) {
      has_sizes = true;
      return ReadDims(name, field, dims);
    }
    return walk_.Skip(field);
  });
  if (!good) return false;
  if (!has_dtype)
    return walk_.Fail(place, "tensor `{}` has an element type that Heddle does not have", name);
  if (!has_sizes) return walk_.Fail(place, "tensor `{}` has no `sizes`", name);
  if (!CheckedBytes(SymbolTable(), dims, dtype->dtype))
    return walk_.Fail(place, "tensor `{}` exceeds 2^63 bytes", name);
  type = &program_.types.emplace_back(Type::Tensor(dtype->dtype, std::move(dims)));
  return true;
}

bool ExportValues::ReadDims(std::string_view name, JsonValue sizes, Dims& dims) {
  if (!JsonWalk::IsArray(sizes))
    return walk_.Fail(walk_.Place(sizes), "tensor `{}` has no `sizes`", name);
  return walk_.Items(sizes, [&](JsonValue item) {
    size_t at = walk_.Place(item);
    std::optional<int64_t> size;
    if (!Size(item, size)) return false;
    if (!size || *size < 0)
      return walk_.Fail(at, "tensor `{}` has a size without a number or a hint", name);
    dims.push_back(*size);
    return true;
  });
}

// A number, or an expression with the number that it had when the program was made.
bool ExportValues::Size(JsonValue e, std::optional<int64_t>& size) {
  if (!JsonWalk::IsObject(e)) return walk_.Skip(e);
  std::optional<int64_t> hint;
  bool direct = false;
  bool good = walk_.Fields(e, [&](std::string_view key, JsonValue field) {
    if (IsKey(key, "as_int") && !direct && !JsonWalk::IsNull(field)) {
      direct = true;
      return walk_.Int(field, size);
    }
    if (IsKey(key, "as_expr") && !hint && JsonWalk::IsObject(field)) return SizeHint(field, hint);
    return walk_.Skip(field);
  });
  if (!direct) size = hint;
  return good;
}

bool ExportValues::SizeHint(JsonValue expression, std::optional<int64_t>& size) {
  return walk_.Fields(expression, [&](std::string_view key, JsonValue hint) {
    if (!IsKey(key, "hint") || size || !JsonWalk::IsObject(hint)) return walk_.Skip(hint);
    return walk_.Fields(hint, [&](std::string_view tag, JsonValue number) {
      return IsKey(tag, "as_int") && !size ? walk_.Int(number, size) : walk_.Skip(number);
    });
  });
}

bool ExportValues::ReadSizes(JsonValue sizes) {
  return walk_.Fields(sizes, [&](std::string_view name, JsonValue value) {
    std::optional<int64_t> number;
    if (!Size(value, number)) return false;
    if (number) sizes_.emplace(program_.words.Intern(name).index(), *number);
    return true;
  });
}

const Type* ExportValues::TypeOf(WordId name) const {
  return name.index() < types_.size() ? types_[name.index()] : nullptr;
}

std::optional<int64_t> ExportValues::SizeOf(WordId name) const {
  auto at = sizes_.find(name.index());
  return at == sizes_.end() ? std::nullopt : std::optional(at->second);
}

// --- Arguments

bool ExportValues::IsName(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, IsNameChar);
}

bool ExportValues::Argument(JsonValue e, ForeignValue& value) {
  std::string_view text = walk_.TextFrom(e);
  std::string_view tensor = TakeName(text, kTensorBegin, kTensorEnd);
  if (tensor.empty()) return Argument(e, 0, value);
  name_place_ = walk_.Place(e) + sizeof(kTensorBegin) - 1;
  value = ForeignValue::Of(Kind::kName, NameWord(tensor));
  return JsonWalk::PassObject(e);
}

bool ExportValues::IsTensorInput(JsonValue e, std::string_view& name, ForeignValue& value) {
  std::string_view text = walk_.TextFrom(e);
  name = TakeName(text, R"({"name": ")", R"(", "arg": )");
  if (name.empty()) return false;
  std::string_view tensor = TakeName(text, kTensorBegin, kTensorEnd);
  if (tensor.empty() || (!Begins(text, R"(, "kind": 1})") && !Begins(text, "}"))) return false;
  value = ForeignValue::Of(Kind::kName, NameWord(tensor));
  return true;
}

WordId ExportValues::NameWord(std::string_view name) {
  StringTable<WordId>& words = program_.words;
  for (size_t i = 0; i < std::size(likely_); ++i) {
    if (likely_[i] >= words.size() || words[WordId(likely_[i])] != name) continue;
    oldest_likely_ = 1 - i;
    return WordId(likely_[i]++);
  }
  size_t before = words.size();
  WordId word = words.Intern(name);
  // A new name is followed by none.
  if (words.size() == before) {
    likely_[oldest_likely_] = word.index() + 1;
    oldest_likely_ = 1 - oldest_likely_;
  }
  return word;
}

bool ExportValues::Name(JsonValue e, ForeignValue& value) {
  size_t at = walk_.Place(e);
  std::string_view name;
  if (!walk_.Text(e, name)) return false;
  if (!IsName(name)) return walk_.Fail(at, "{} is not a name of a value", Quoted(name));
  name_place_ = at + 1;
  value = ForeignValue::Of(Kind::kName, NameWord(name));
  return true;
}

// `{"name": "x"}`
bool ExportValues::NameField(JsonValue e, ForeignValue& value) {
  size_t at = walk_.Place(e);
  bool found = false;
  bool good = !JsonWalk::IsObject(e) || walk_.Fields(e, [&](std::string_view key, JsonValue field) {
    if (!IsKey(key, "name") || found) return walk_.Skip(field);
    found = true;
    return Name(field, value);
  });
  return good && (found || walk_.Fail(at, "a tensor has no `name`"));
}

// A value without a tag: what lists hold.
bool ExportValues::Plain(JsonValue e, int depth, ForeignValue& value) {
  if (JsonWalk::IsObject(e)) return Tagged(e, depth, true, value);
  if (JsonWalk::IsArray(e)) return Items(e, depth, value);
  if (JsonWalk::IsNull(e)) return walk_.Skip(e);
  if (JsonWalk::IsBool(e)) {
    value.kind = Kind::kBool;
    return walk_.Bool(e, value.boolean);
  }
  if (!JsonWalk::IsText(e)) return Number(e, value);
  std::string_view text;
  if (!walk_.Text(e, text)) return false;
  value = ForeignValue::Of(Kind::kString, program_.Word(text));
  return true;
}

bool ExportValues::Number(JsonValue e, ForeignValue& value) {
  size_t at = walk_.Place(e);
  simdjson::ondemand::number number;
  if (!walk_.Number(e, number)) return false;
  if (number.is_uint64()) return walk_.Fail(at, "a number exceeds 64 bits");
  if (number.is_int64()) {
    value = {.kind = Kind::kInt, .integer = number.get_int64()};
  } else {
    value = {.kind = Kind::kFloat, .number = number.get_double()};
  }
  return true;
}

// Those that JSON has no digits for are texts.
bool ExportValues::Float(JsonValue e, ForeignValue& value) {
  value.kind = Kind::kFloat;
  value.number = std::numeric_limits<double>::quiet_NaN();
  if (JsonWalk::IsText(e)) {
    std::string_view text;
    if (!walk_.Text(e, text)) return false;
    if (text == "Infinity") value.number = std::numeric_limits<double>::infinity();
    if (text == "-Infinity") value.number = -std::numeric_limits<double>::infinity();
    return true;
  }
  if (JsonWalk::IsObject(e) || JsonWalk::IsArray(e) || JsonWalk::IsBool(e))
    return walk_.Fail(walk_.Place(e), "`as_float` is not a number");
  simdjson::ondemand::number number;
  if (!walk_.Number(e, number)) return false;
  value.number = number.as_double();
  return true;
}

// A constant, as Python calls it.
bool ExportValues::Constant(std::string_view tag, JsonValue e, ForeignValue& value) {
  std::string_view word = "torch.strided";
  if (IsKey(tag, "as_device") && JsonWalk::IsObject(e)) {
    word = "device";
    bool good = walk_.Fields(e, [&](std::string_view key, JsonValue field) {
      std::string_view type;
      if (!walk_.Text(field, type)) return false;
      if (IsKey(key, "type") && type == "cpu") word = "cpu";
      return true;
    });
    if (!good) return false;
  } else {
    std::optional<int64_t> code;
    if (!walk_.Int(e, code)) return false;
    if (IsKey(tag, "as_scalar_type")) {
      const DTypeCode* dtype = FindDType(code.value_or(-1));
      word = dtype == nullptr ? "torch.unknown" : dtype->word;
    } else if (IsKey(tag, "as_memory_format")) {
      word = code == 1   ? "torch.contiguous_format"
             : code == 2 ? "torch.channels_last"
                         : "torch.preserve_format";
    } else if (IsKey(tag, "as_device")) {
      word = "device";
    }
  }
  value = ForeignValue::Of(Kind::kWord, program_.Word(word));
  return true;
}

bool ExportValues::Items(JsonValue e, int depth, ForeignValue& value) {
  if (depth > kDeepestArgument)
    return walk_.Fail(walk_.Place(e), "an argument is nested more than {} deep", kDeepestArgument);
  size_t begin = open_items_.size();
  bool good = walk_.Items(e, [&](JsonValue item) {
    ForeignValue one;
    if (!Plain(item, depth + 1, one)) return false;
    open_items_.push_back(one);
    return true;
  });
  if (!good) return false;
  value = program_.TakeList(Kind::kList, open_items_, begin);
  return true;
}

bool ExportValues::Tagged(JsonValue e, int depth, bool may_be_name, ForeignValue& value) {
  size_t at = walk_.Place(e);
  if (depth > kDeepestArgument || !JsonWalk::IsObject(e))
    return walk_.Fail(at, "an argument is not one of the kinds that exist");
  bool any = false;
  bool found = false;
  bool good = walk_.Fields(e, [&](std::string_view tag, JsonValue field) {
    any = true;
    if (may_be_name && IsKey(tag, "name") && JsonWalk::IsText(field)) {
      may_be_name = false;
      found = true;
      return Name(field, value);
    }
    if (found || JsonWalk::IsNull(field)) return walk_.Skip(field);
    found = true;
    return Untag(tag, field, depth, value);
  });
  if (!good) return false;
  return any || walk_.Fail(at, "an argument is not one of the kinds that exist");
}

bool ExportValues::Untag(std::string_view tag, JsonValue e, int depth, ForeignValue& value) {
  if (IsKey(tag, "as_tensor")) return NameField(e, value);
  if (IsKey(tag, "as_name")) return Name(e, value);
  if (IsKey(tag, "as_int") || IsKey(tag, "as_bool") || IsKey(tag, "as_string"))
    return Plain(e, depth, value);
  if (IsKey(tag, "as_none")) return walk_.Skip(e);
  if (IsKey(tag, "as_float")) return Float(e, value);
  if (IsKey(tag, "as_scalar_type") || IsKey(tag, "as_memory_format") || IsKey(tag, "as_layout") ||
      IsKey(tag, "as_device"))
    return Constant(tag, e, value);
  if (IsKey(tag, "as_sym_int") || IsKey(tag, "as_sym_bool") || IsKey(tag, "as_sym_float") ||
      IsKey(tag, "as_optional_tensor"))
    return Argument(e, depth + 1, value);
  if (JsonWalk::IsArray(e)) return Items(e, depth, value);
  // A graph, an object, a number of two parts: nothing that a graph of Heddle holds.
  value = ForeignValue::Of(Kind::kWord, program_.Word("torch.object"));
  return walk_.Skip(e);
}

}  // namespace heddle
