#include "heddle/core/ir/schema.h"

#include <algorithm>
#include <charconv>

#include "heddle/core/base/scanner.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

struct TypeName {
  std::string_view name;
  ArgKind kind;
};
constexpr TypeName kTypeNames[] = {
    {"Tensor", ArgKind::kTensor},     {"Async", ArgKind::kAsync},
    {"bool", ArgKind::kBool},         {"int", ArgKind::kInt},
    {"SymInt", ArgKind::kInt},        {"float", ArgKind::kFloat},
    {"Scalar", ArgKind::kScalar},     {"str", ArgKind::kString},
    {"ScalarType", ArgKind::kDType},  {"MemoryFormat", ArgKind::kMemoryFormat},
    {"Axes", ArgKind::kAxes},         {"Why", ArgKind::kWhy},
    {"ReduceOp", ArgKind::kReduceOp}, {"Layout", ArgKind::kAmbient},
    {"Device", ArgKind::kAmbient},    {"Generator", ArgKind::kAmbient},
};

constexpr std::string_view kDescriptions[] = {
    "a tensor",
    "a tensor",
    "a list of tensors",
    "a list of tensors",
    "tensors",
    "an async value",
    "true or false",
    "an integer",
    "a number",
    "a number",
    "a quoted string",
    "an element type",
    "a memory format",
    "a list of mesh axes",
    "a purpose",
    "a reduction",
    "a list of integers",
    "a list of numbers",
    "a list of booleans",
    "an integer, or a list with one for each tensor",
    "a quoted string, or a list with one for each tensor",
    "nothing",
};

// Reads one schema. Schemas come from Heddle or ATen, so reading stops at the first error.
class SchemaParser {
 public:
  explicit SchemaParser(std::string_view text) : scan_(text) {}

  Result<Schema> Parse() {
    Schema schema;
    std::string_view space = scan_.TakeRun(CharClass::kWord);
    bool named = scan_.TakeSymbol("::");
    std::string_view op = scan_.TakeRun(CharClass::kName);
    if (space.empty() || !named || op.empty() || !scan_.Take('(')) return Bad("a name and `(`");
    schema.name = fmt::format("{}.{}", space, op);
    while (!scan_.Take(')')) {
      if (scan_.Take('*')) {
        scan_.Take(',');
        continue;
      }
      HEDDLE_TRY(Arg arg, ParseArg());
      schema.args.push_back(std::move(arg));
      if (!scan_.Take(',') && scan_.Peek() != ')') return Bad("`,` or `)`");
    }
    if (!scan_.TakeSymbol("->")) return Bad("`->`");
    HEDDLE_RETURN_IF_ERROR(ParseReturns(schema));
    if (!scan_.AtEnd()) return Bad("the end");
    return schema;
  }

 private:
  Failure Bad(std::string_view expected) {
    return Error(Diag::kBadSchema, "schema `{}`: expected {} at character {}", scan_.text(),
                 expected, scan_.offset() + 1);
  }

  // `(a)`, `(a -> *)`: the op's effect states aliasing. `(a!)` is a write, which no graph has.
  bool SkipAlias() {
    if (scan_.PeekRaw() != '(') return true;
    size_t close = scan_.text().find(')', scan_.offset());
    if (close == std::string_view::npos) return false;
    std::string_view alias = scan_.text().substr(scan_.offset(), close - scan_.offset());
    scan_.set_offset(close + 1);
    return alias.find('!') == std::string_view::npos;
  }

  Result<Arg> ParseArg() {
    Arg arg;
    std::string_view name = scan_.TakeRun(CharClass::kWord);
    const TypeName* type = nullptr;
    for (const TypeName& known : kTypeNames) {
      if (known.name == name) type = &known;
    }
    if (type == nullptr) return Bad("a known type");
    arg.kind = type->kind;
    if (!SkipAlias()) return Bad("an argument that is not written to");
    if (scan_.TakeSymbol("...")) HEDDLE_RETURN_IF_ERROR(MakeEach(arg));
    if (scan_.PeekRaw() == '?') {
      scan_.Take('?');
      arg.optional = true;
      if (arg.kind == ArgKind::kTensor) arg.kind = ArgKind::kOptionalTensor;
    }
    if (scan_.PeekRaw() == '[') {
      scan_.Take('[');
      scan_.TakeInt();
      if (!scan_.Take(']')) return Bad("`]`");
      HEDDLE_RETURN_IF_ERROR(MakeList(arg));
    }
    if (scan_.PeekRaw() == '?') {
      scan_.Take('?');
      arg.optional = true;
    }
    arg.name = scan_.TakeRun(CharClass::kWord);
    if (arg.name.empty()) return Bad("an argument's name");
    // The only ambient argument that its type does not identify.
    if (arg.name == "pin_memory") arg.kind = ArgKind::kAmbient;
    if (scan_.Take('=')) {
      arg.has_default = true;
      HEDDLE_TRY(arg.default_value, ParseDefault(arg));
    }
    return arg;
  }

  Status MakeEach(Arg& arg) {
    switch (arg.kind) {
      case ArgKind::kTensor: arg.kind = ArgKind::kTensors; return Done{};
      case ArgKind::kInt: arg.kind = ArgKind::kEachInt; return Done{};
      case ArgKind::kString: arg.kind = ArgKind::kEachString; return Done{};
      default: return Bad("a type of which there is one for each tensor");
    }
  }

  Status MakeList(Arg& arg) {
    switch (arg.kind) {
      case ArgKind::kTensor: arg.kind = ArgKind::kTensorList; return Done{};
      case ArgKind::kOptionalTensor:
        arg.kind = ArgKind::kOptionalTensorList;
        arg.optional = false;
        return Done{};
      case ArgKind::kInt: arg.kind = ArgKind::kIntList; return Done{};
      case ArgKind::kFloat: arg.kind = ArgKind::kFloatList; return Done{};
      case ArgKind::kBool: arg.kind = ArgKind::kBoolList; return Done{};
      default: return Bad("a type of which there are lists");
    }
  }

  Result<AttrValue> ParseDefault(const Arg& arg) {
    size_t begin = scan_.offset();
    int depth = 0;
    while (scan_.offset() < scan_.text().size()) {
      char c = scan_.PeekRaw();
      if (c == '[') ++depth;
      if (c == ']') --depth;
      if (depth == 0 && (c == ',' || c == ')')) break;
      scan_.set_offset(scan_.offset() + 1);
    }
    std::string_view text = Trim(scan_.text().substr(begin, scan_.offset() - begin));
    AttrValue value = ReadLiteral(arg, text);
    if (std::holds_alternative<std::monostate>(value) && text != "None" &&
        arg.kind != ArgKind::kAmbient) {
      return Bad("a default value");
    }
    return value;
  }

  static AttrValue ReadLiteral(const Arg& arg, std::string_view text) {
    if (text == "True" || text == "False") return text == "True";
    if (text == "contiguous_format") return MemoryFormat::kContiguous;
    // at::Reduction::Mean, the only name that ATen uses as a default for an int.
    if (text == "Mean") return int64_t{1};
    if (text.size() >= 2 && text.front() == '"')
      return std::string(text.substr(1, text.size() - 2));
    if (text.size() >= 2 && text.front() == '[') {
      std::vector<int64_t> ints;
      std::string_view inner = Trim(text.substr(1, text.size() - 2));
      if (!inner.empty()) {
        for (std::string_view item : Split(inner, ','))
          ints.push_back(Number<int64_t>(Trim(item)).value_or(0));
      }
      return ConvertAttr(arg, ints).value_or(AttrValue());
    }
    if (auto value = Number<int64_t>(text)) return ConvertAttr(arg, *value).value_or(AttrValue());
    if (auto value = Number<double>(text)) return *value;
    return ParseEnumerator(text);
  }

  template <typename T>
  static std::optional<T> Number(std::string_view text) {
    T value{};
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
  }

  Status ParseReturns(Schema& schema) {
    bool several = scan_.Take('(');
    do {
      if (several && scan_.Peek() == ')') break;
      std::string_view name = scan_.TakeRun(CharClass::kWord);
      if (name.empty()) return Bad("a result type");
      ReturnKind kind = ReturnKind::kOther;
      if (name == "Async") kind = ReturnKind::kAsync;
      if (name == "Tensor") kind = ReturnKind::kTensor;
      if (!SkipAlias()) return Bad("a result that is not an argument written to");
      if (scan_.TakeSymbol("[]") || scan_.TakeSymbol("...")) kind = ReturnKind::kTensors;
      // A name that the graph does not use.
      scan_.TakeRun(CharClass::kWord);
      schema.returns.push_back(kind);
    } while (several && scan_.Take(','));
    if (several && !scan_.Take(')')) return Bad("`)`");
    return Done{};
  }

  Scanner scan_;
};

}  // namespace

std::string_view Describe(ArgKind kind) { return kDescriptions[static_cast<size_t>(kind)]; }

const Arg* Schema::Find(std::string_view arg_name) const {
  for (const Arg& arg : args) {
    if (arg.name == arg_name) return &arg;
  }
  return nullptr;
}

int Schema::FixedResults() const {
  int count = 0;
  for (ReturnKind kind : returns) {
    if (kind == ReturnKind::kTensors) return -1;
    count += kind != ReturnKind::kOther;
  }
  return count;
}

Result<Schema> ParseSchema(std::string_view text) { return SchemaParser(text).Parse(); }

namespace {

// Whether `value` is a T or a list of T. A list of equal items becomes one item.
template <typename T>
bool IsEach(AttrValue& value) {
  if (const auto* list = std::get_if<std::vector<T>>(&value)) {
    if (list->empty()) return false;
    bool equal = std::ranges::adjacent_find(*list, std::not_equal_to<>()) == list->end();
    if (equal) value = T(list->front());
    return true;
  }
  return std::holds_alternative<T>(value);
}

}  // namespace

std::optional<AttrValue> ConvertAttr(const Arg& arg, AttrValue value) {
  if (std::holds_alternative<std::monostate>(value)) {
    if (!arg.optional) return std::nullopt;
    return value;
  }
  const auto* integer = std::get_if<int64_t>(&value);
  const auto* integers = std::get_if<std::vector<int64_t>>(&value);
  auto is = [&]<typename T>(std::type_identity<T>) { return std::holds_alternative<T>(value); };
  bool fits = false;
  switch (arg.kind) {
    case ArgKind::kBool: fits = is(std::type_identity<bool>()); break;
    case ArgKind::kInt: fits = integer != nullptr; break;
    case ArgKind::kFloat:
      if (integer != nullptr && !IsSymbol(*integer)) value = static_cast<double>(*integer);
      fits = is(std::type_identity<double>());
      break;
    case ArgKind::kScalar:
      fits = integer != nullptr || is(std::type_identity<double>()) ||
             is(std::type_identity<bool>()) || is(std::type_identity<std::complex<double>>());
      break;
    case ArgKind::kString: fits = is(std::type_identity<std::string>()); break;
    case ArgKind::kDType: fits = is(std::type_identity<DType>()); break;
    case ArgKind::kMemoryFormat: fits = is(std::type_identity<MemoryFormat>()); break;
    case ArgKind::kWhy: fits = is(std::type_identity<Why>()); break;
    case ArgKind::kReduceOp: fits = is(std::type_identity<ReduceOp>()); break;
    case ArgKind::kAxes:
      if (integers != nullptr && integers->empty()) value = Axes();
      fits = is(std::type_identity<Axes>());
      break;
    case ArgKind::kIntList:
      if (integer != nullptr) value = std::vector<int64_t>{*integer};
      fits = is(std::type_identity<std::vector<int64_t>>());
      break;
    case ArgKind::kFloatList:
      if (integers != nullptr) value = std::vector<double>(integers->begin(), integers->end());
      fits = is(std::type_identity<std::vector<double>>());
      break;
    case ArgKind::kBoolList:
      if (integers != nullptr && integers->empty()) value = std::vector<bool>();
      fits = is(std::type_identity<std::vector<bool>>());
      break;
    case ArgKind::kEachInt: fits = IsEach<int64_t>(value); break;
    case ArgKind::kEachString: fits = IsEach<std::string>(value); break;
    default: break;
  }
  if (!fits) return std::nullopt;
  return value;
}

}  // namespace heddle
