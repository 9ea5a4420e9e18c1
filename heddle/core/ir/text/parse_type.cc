#include "heddle/core/ir/text/parse_type.h"

#include <charconv>
#include <limits>

#include "heddle/core/base/text.h"

namespace heddle {
namespace {

// The length of a type written without spaces, up to the comma, parenthesis or space that ends it.
size_t PlainTypeLength(std::string_view text) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    switch (text[i]) {
      case '[':
      case '{': ++depth; break;
      case ']':
      case '}': --depth; break;
      case ',':
      case ')':
        if (depth == 0) return i;
        break;
      case ' ':
      case '\n':
      case '\t':
      case '\r': return i;
      default: break;
    }
  }
  return text.size();
}

}  // namespace

std::optional<PlacedType> TypeParser::ParseType() {
  scan_.SkipSpace();
  std::string_view rest = scan_.text().substr(scan_.offset());
  std::string_view text = rest.substr(0, PlainTypeLength(rest));
  uint64_t hash = Hash64(text);
  uint32_t found = cache_index_.Find(hash, [&](uint32_t n) { return cache_[n].first == text; });
  if (found != HashIndex::kNone) {
    scan_.set_offset(scan_.offset() + text.size());
    return cache_[found].second;
  }
  if (text == "async") return ParseAsync();
  size_t begin = scan_.offset();
  std::optional<PlacedType> type = ParseTensor(module_.view);
  if (type && scan_.offset() == begin + text.size()) {
    cache_index_.Insert(hash, static_cast<uint32_t>(cache_.size()));
    cache_.emplace_back(text, *type);
  }
  return type;
}

std::optional<PlacedType> TypeParser::ParseAsync() {
  scan_.TakeWord("async");
  bool several = scan_.Take('(');
  std::vector<TypeId> elements;
  do {
    size_t begin = scan_.offset();
    std::optional<PlacedType> element = ParseTensor(module_.view);
    if (!element) return std::nullopt;
    if (element->placement != PlacementTable::kReplicated) {
      report_.Report(begin, 1, Diag::kAsyncPlacement,
                     "an async type has a placement; only tensors have one");
      return std::nullopt;
    }
    elements.push_back(element->type);
  } while (several && scan_.Take(','));
  if (several && !scan_.Take(')')) {
    report_.Report(scan_.offset(), 1, Diag::kSyntax,
                   "expected `)` after the types of an async value");
    return std::nullopt;
  }
  return PlacedType{graph_.types().Async(elements)};
}

std::optional<PlacedType> TypeParser::ParseTensor(View view) {
  if (scan_.TakeWord("none")) return PlacedType{TypeTable::kNoneType};
  Space space = scan_.TakeWord("host") ? Space::kHost : Space::kDevice;
  scan_.SkipSpace();
  size_t begin = scan_.offset();
  std::string_view name = scan_.TakeRawRun(CharClass::kWord);
  std::optional<DType> dtype = ParseDType(name);
  if (!dtype) {
    report_.Report(begin, name.size(), Diag::kBadType,
                   "expected a type, as in `f32[8,16]`, got `{}`", name);
    return std::nullopt;
  }
  Dims dims;
  Placement placement;
  if (!ParseDims(view, dims, placement)) return std::nullopt;
  if (scan_.PeekRaw() == '{') {
    if (!ParsePartials(placement)) return std::nullopt;
  }
  if (!CheckedBytes(graph_.types().symbols(), dims, *dtype)) {
    report_.Report(begin, scan_.offset() - begin, Diag::kSizeOverflow,
                   "the bytes of `{}` exceed 2^63 - 1",
                   scan_.text().substr(begin, scan_.offset() - begin));
    return std::nullopt;
  }
  if (!CheckAxisOnce(placement, begin, scan_.offset() - begin)) return std::nullopt;
  return PlacedType{graph_.types().Tensor(*dtype, dims, space),
                    graph_.placements().Intern(std::move(placement))};
}

bool TypeParser::ParseDims(View view, Dims& dims, Placement& placement) {
  if (!scan_.Take('[')) {
    report_.Report(scan_.offset(), 1, Diag::kSyntax, "expected `[` after an element type");
    return false;
  }
  if (scan_.Take(']')) return true;
  do {
    std::optional<Dim> dim = ParseDim(view, placement, dims.size());
    if (!dim) return false;
    dims.push_back(*dim);
  } while (scan_.Take(','));
  if (!scan_.Take(']')) {
    report_.Report(scan_.offset(), 1, Diag::kSyntax, "expected `,` or `]` in a shape");
    return false;
  }
  if (!placement.splits.empty()) placement.splits.resize(dims.size());
  return true;
}

std::optional<Dim> TypeParser::ParseDim(View view, Placement& placement, size_t index) {
  scan_.SkipSpace();
  size_t begin = scan_.offset();
  std::optional<int64_t> size = scan_.TakeInt();
  if (!size) return ParseNamedDim();
  if (*size < 0) {
    report_.Report(begin, scan_.offset() - begin, Diag::kBadType,
                   "dimension {} is {}; expected at least 0", index, *size);
    return std::nullopt;
  }
  if (scan_.PeekRaw() != '{') return size;
  scan_.Take('{');
  std::optional<Axes> axes = ParseAxes('}');
  if (!axes) return std::nullopt;
  if (view == View::kGlobal) {
    placement.splits.resize(index + 1);
    placement.splits[index] = *axes;
    return size;
  }
  if (*size % module_.mesh.Size(*axes) == 0) {
    report_.Report(begin, scan_.offset() - begin, Diag::kEvenChunk,
                   "`{}{{{}}}` in a local graph is {} on every rank; write the number", *size,
                   Format(module_.mesh, *axes), *size / module_.mesh.Size(*axes));
    return std::nullopt;
  }
  return graph_.types().symbols().Chunk(*size, *axes, module_.mesh);
}

std::optional<Dim> TypeParser::ParseNamedDim() {
  SymbolTable& symbols = graph_.types().symbols();
  size_t begin = scan_.offset();
  std::string_view name = scan_.TakeRun(CharClass::kWord);
  if (name.empty() || (name[0] >= '0' && name[0] <= '9')) {
    report_.Report(begin, 1, Diag::kBadType,
                   "expected a size, or a symbol with its bound, as in `t0<=4096`");
    return std::nullopt;
  }
  if (IsReservedWord(name)) {
    report_.Report(begin, name.size(), Diag::kReservedName,
                   "`{}` is a word of the format and cannot name a symbol", name);
    return std::nullopt;
  }
  if (module_.mesh.Find(name)) {
    report_.Report(begin, name.size(), Diag::kReservedName,
                   "`{}` is an axis of the mesh and cannot name a symbol", name);
    return std::nullopt;
  }
  const Symbol* known = symbols.Find(name);
  if (!scan_.TakeSymbol("<=")) {
    if (known != nullptr) return symbols.DimOf(*known);
    report_.Report(begin, name.size(), Diag::kUnknownSymbol,
                   "symbol `{}` has no bound yet; write `{}<=N` where it first occurs", name, name);
    return std::nullopt;
  }
  std::optional<int64_t> bound = scan_.TakeInt();
  if (!bound || *bound < 0) {
    report_.Report(scan_.offset(), 1, Diag::kBadType, "expected the upper bound of `{}`", name);
    return std::nullopt;
  }
  if (known != nullptr && known->bound != *bound) {
    report_.Report(begin, name.size(), Diag::kSymbolBound,
                   "symbol `{}` has bound {} here and {} before", name, *bound, known->bound);
    return std::nullopt;
  }
  return symbols.Named(name, *bound);
}

bool TypeParser::ParsePartials(Placement& placement) {
  scan_.Take('{');
  do {
    ReduceOp op = ReduceOp::kSum;
    if (scan_.TakeWord("max")) {
      op = ReduceOp::kMax;
    } else if (scan_.TakeWord("min")) {
      op = ReduceOp::kMin;
    } else if (scan_.TakeWord("avg")) {
      op = ReduceOp::kAvg;
    } else if (!scan_.Take('+')) {
      report_.Report(scan_.offset(), 1, Diag::kSyntax,
                     "expected `+`, `max`, `min` or `avg` and an axis in a partial placement");
      return false;
    }
    std::optional<AxisId> axis = ParseAxis();
    if (!axis) return false;
    placement.partials.push_back({*axis, op});
  } while (scan_.Take(','));
  if (scan_.Take('}')) return true;
  report_.Report(scan_.offset(), 1, Diag::kSyntax, "expected `}}` after a partial placement");
  return false;
}

std::optional<AxisId> TypeParser::ParseAxis() {
  scan_.SkipSpace();
  size_t begin = scan_.offset();
  std::string_view name = scan_.TakeRawRun(CharClass::kWord);
  if (std::optional<AxisId> axis = module_.mesh.Find(name)) return axis;
  std::vector<std::string_view> names;
  for (const MeshAxis& axis : module_.mesh.axes()) names.push_back(axis.name);
  report_.Report(begin, name.size(), Diag::kUnknownAxis, "mesh [{}] has no axis `{}`{}",
                 Format(module_.mesh), name, NearestHint(name, names));
  return std::nullopt;
}

std::optional<Axes> TypeParser::ParseAxes(char close) {
  Axes axes;
  do {
    size_t begin = scan_.offset();
    std::optional<AxisId> axis = ParseAxis();
    if (!axis) return std::nullopt;
    if (!axes.Add(*axis)) {
      report_.Report(begin, scan_.offset() - begin, Diag::kAxisTwice,
                     "mesh axis `{}` occurs twice in one list", module_.mesh[*axis].name);
      return std::nullopt;
    }
  } while (scan_.Take(','));
  if (!scan_.Take(close)) {
    report_.Report(scan_.offset(), 1, Diag::kSyntax, "expected `,` or `{}` in a list of mesh axes",
                   close);
    return std::nullopt;
  }
  return axes;
}

bool TypeParser::CheckAxisOnce(Placement& placement, size_t offset, size_t width) {
  Axes seen;
  auto add = [&](AxisId axis) {
    if (seen.Add(axis)) return true;
    report_.Report(offset, width, Diag::kAxisTwice, "mesh axis `{}` is used twice in one placement",
                   module_.mesh[axis].name);
    return false;
  };
  for (const Axes& axes : placement.splits) {
    for (AxisId axis : axes) {
      if (!add(axis)) return false;
    }
  }
  for (const Partial& partial : placement.partials) {
    if (!add(partial.axis)) return false;
  }
  return true;
}

std::optional<AttrValue> TypeParser::ParseLiteral() {
  char c = scan_.Peek();
  if (c == '[') return ParseList();
  if (c == '"') {
    size_t begin = scan_.offset();
    std::optional<std::string> text = scan_.TakeQuoted();
    if (text) return *std::move(text);
    report_.Report(begin, 1, Diag::kSyntax,
                   "a string is not closed on its line, or has an unknown escape");
    return std::nullopt;
  }
  bool number = (c >= '0' && c <= '9') || c == '-';
  return number ? ParseNumber() : ParseWord();
}

std::optional<AttrValue> TypeParser::ParseNumber() {
  size_t begin = scan_.offset();
  std::string_view digits = scan_.TakeRun(CharClass::kNumber);
  const char* end = digits.data() + digits.size();
  if (digits.find_first_of(".einf") == std::string_view::npos) {
    int64_t value = 0;
    auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error == std::errc() && stop == end && !IsSymbol(value)) {
      if (scan_.PeekRaw() != '{' || value < 0) return AttrValue(value);
      scan_.Take('{');
      std::optional<Axes> axes = ParseAxes('}');
      if (!axes) return std::nullopt;
      return AttrValue(graph_.types().symbols().Chunk(value, *axes, module_.mesh));
    }
  } else {
    double value = 0;
    auto [stop, error] = std::from_chars(digits.data(), end, value);
    if (error == std::errc() && stop == end) return AttrValue(value);
  }
  report_.Report(begin, digits.size(), Diag::kSyntax, "`{}` is not a number of 64 bits", digits);
  return std::nullopt;
}

std::optional<AttrValue> TypeParser::ParseWord() {
  scan_.SkipSpace();
  size_t begin = scan_.offset();
  std::string_view word = scan_.TakeRawRun(CharClass::kWord);
  if (word == "none") return AttrValue();
  if (word == "true" || word == "false") return AttrValue(word == "true");
  if (word == "inf") return AttrValue(std::numeric_limits<double>::infinity());
  if (word == "nan") return AttrValue(std::numeric_limits<double>::quiet_NaN());
  if (word == "complex" && scan_.Take('(')) {
    auto part = [&]() -> std::optional<double> {
      double value = 0;
      std::string_view digits = scan_.TakeRun(CharClass::kNumber);
      const char* end = digits.data() + digits.size();
      auto [stop, error] = std::from_chars(digits.data(), end, value);
      if (error != std::errc() || stop != end) return std::nullopt;
      return value;
    };
    std::optional<double> real = part();
    std::optional<double> imaginary = real && scan_.Take(',') ? part() : std::nullopt;
    if (imaginary && scan_.Take(')')) return AttrValue(std::complex<double>(*real, *imaginary));
  } else if (AttrValue value = ParseEnumerator(word);
             !std::holds_alternative<std::monostate>(value)) {
    return value;
  } else if (const Symbol* symbol = graph_.types().symbols().Find(word)) {
    return AttrValue(graph_.types().symbols().DimOf(*symbol));
  }
  report_.Report(begin, word.size(), Diag::kBadLiteral, "`{}` is not a value; names are quoted",
                 word);
  return std::nullopt;
}

std::optional<AttrValue> TypeParser::ParseList() {
  size_t begin = scan_.offset();
  scan_.Take('[');
  if (scan_.Take(']')) return AttrValue(std::vector<int64_t>());
  std::vector<AttrValue> items;
  size_t first = scan_.offset();
  bool word = (kCharClasses[static_cast<unsigned char>(scan_.Peek())] &
               (CharClass::kWord | CharClass::kDigit)) == CharClass::kWord;
  if (word) {
    std::string_view name = scan_.TakeRun(CharClass::kWord);
    scan_.set_offset(first);
    bool value = name == "true" || name == "false" || name == "inf" || name == "nan" ||
                 graph_.types().symbols().Find(name) != nullptr;
    // Any other word can only be an axis, because lists contain no other names.
    if (!value) {
      std::optional<Axes> axes = ParseAxes(']');
      if (!axes) return std::nullopt;
      return AttrValue(*axes);
    }
  }
  do {
    // Lists do not nest. Rejecting nested lists here also limits the recursion for hostile texts.
    std::optional<AttrValue> item;
    if (scan_.Peek() != '[') item = ParseLiteral();
    if (!item) {
      if (scan_.Peek() == '[')
        report_.Report(scan_.offset(), 1, Diag::kSyntax, "a list is nested in a list");
      return std::nullopt;
    }
    items.push_back(*std::move(item));
  } while (scan_.Take(','));
  if (!scan_.Take(']')) {
    report_.Report(scan_.offset(), 1, Diag::kSyntax, "expected `,` or `]` in a list");
    return std::nullopt;
  }
  auto all = [&]<typename T>(std::type_identity<T>) -> std::optional<AttrValue> {
    std::vector<T> list;
    for (const AttrValue& item : items) {
      const T* value = std::get_if<T>(&item);
      if (value == nullptr) return std::nullopt;
      list.push_back(*value);
    }
    return AttrValue(std::move(list));
  };
  if (auto list = all(std::type_identity<int64_t>())) return list;
  if (auto list = all(std::type_identity<double>())) return list;
  if (auto list = all(std::type_identity<bool>())) return list;
  if (auto list = all(std::type_identity<std::string>())) return list;
  report_.Report(begin, scan_.offset() - begin, Diag::kBadLiteral,
                 "the items of a list are of different kinds");
  return std::nullopt;
}

}  // namespace heddle
