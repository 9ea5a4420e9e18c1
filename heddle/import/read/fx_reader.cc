#include "heddle/import/read/fx_reader.h"

#include <algorithm>
#include <charconv>
#include <unordered_map>

#include "heddle/base/text.h"
#include "heddle/import/read/python_cursor.h"

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;

struct TorchDType {
  std::string_view word;
  std::string_view abbreviation;
  DType dtype;
};
constexpr TorchDType kTorchDTypes[] = {
    {"bfloat16", "bf16", DType::kBF16},
    {"float32", "f32", DType::kF32},
    {"int64", "i64", DType::kI64},
    {"int32", "i32", DType::kI32},
    {"bool", "b8", DType::kBool},
    {"float16", "f16", DType::kF16},
    {"float64", "f64", DType::kF64},
    {"complex64", "c64", DType::kC64},
    {"complex128", "c128", DType::kC128},
    {"int16", "i16", DType::kI16},
    {"int8", "i8", DType::kI8},
    {"uint8", "u8", DType::kU8},
    {"uint64", "u64", DType::kU64},
    {"float8_e4m3fn", "f8e4m3fn", DType::kF8E4M3},
    {"float8_e5m2", "f8e5m2", DType::kF8E5M2},
    // Other names of the same.
    {"float", "f32", DType::kF32},
    {"double", "f64", DType::kF64},
    {"half", "f16", DType::kF16},
    {"long", "i64", DType::kI64},
    {"int", "i32", DType::kI32},
};

struct Operator {
  std::string_view symbol;
  std::string_view target;
};
// Longer ones first.
constexpr Operator kOperators[] = {
    {"//", "operator.floordiv"}, {">=", "operator.ge"},     {"<=", "operator.le"},
    {"==", "operator.eq"},       {"!=", "operator.ne"},     {"**", "operator.pow"},
    {"+", "operator.add"},       {"-", "operator.sub"},     {"*", "operator.mul"},
    {"%", "operator.mod"},       {"/", "operator.truediv"}, {">", "operator.gt"},
    {"<", "operator.lt"},
};

class FxReader {
 public:
  FxReader(std::string_view text, const std::string& file)
      : source_(file, text), cursor_(source_, program_) {}

  Result<ForeignProgram> Read() {
    HEDDLE_RETURN_IF_ERROR(FindForward());
    HEDDLE_RETURN_IF_ERROR(ReadSignature());
    while (true) {
      HEDDLE_TRY(bool more, ReadStatement());
      if (!more) break;
    }
    HEDDLE_RETURN_IF_ERROR(FoldItems());
    HEDDLE_RETURN_IF_ERROR(ReadLoadArgs());
    HEDDLE_RETURN_IF_ERROR(ReadGroups());
    return std::move(program_);
  }

 private:
  std::string_view text() const { return source_.text(); }

  // The name behind `class` at this place.
  std::string_view ClassAt(size_t at) const {
    if (at == std::string_view::npos) return {};
    size_t begin = at + kClass.size();
    size_t end = text().find_first_of("(:\n", begin);
    return end == std::string_view::npos ? std::string_view() : text().substr(begin, end - begin);
  }

  Status FindForward() {
    constexpr std::string_view kForward = "def forward(";
    size_t at = text().find(kForward);
    if (at == std::string_view::npos)
      return cursor_.Fail(0, 1, Diag::kSyntax,
                          "no method `forward`; expected a graph as `print_readable` or a repro of "
                          "Inductor has it");
    size_t chosen = at;
    std::string_view chosen_class;
    size_t last_class = std::string_view::npos;
    size_t next_class = text().find(kClass);
    for (bool first = true; at != std::string_view::npos; at = text().find(kForward, at + 1)) {
      while (next_class < at) {
        last_class = next_class;
        next_class = text().find(kClass, next_class + 1);
      }
      bool repro = ClassAt(last_class) == "Repro";
      if (first || repro) {
        chosen = at;
        chosen_class = ClassAt(last_class);
      }
      if (repro) break;
      first = false;
    }
    program_.name = IdentifierOr(chosen_class, "graph");
    cursor_.set_offset(chosen + kForward.size());
    return Done{};
  }

  static std::string_view IdentifierOr(std::string_view name, std::string_view otherwise) {
    bool good = !name.empty() && std::ranges::all_of(name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    });
    return good ? name : otherwise;
  }

  // `self, arg0_1: "f32[4, 4]", arg1_1):`
  Status ReadSignature() {
    bool first = true;
    while (!cursor_.Take(')')) {
      cursor_.SkipSpace();
      ForeignInput input;
      input.offset = cursor_.offset();
      input.name = cursor_.TakeName();
      if (input.name.empty())
        return cursor_.Fail(cursor_.offset(), 1, Diag::kSyntax, "expected the name of an input");
      if (cursor_.Take(':')) input.type = Annotation();
      if (!first || input.name != "self") program_.inputs.push_back(input);
      first = false;
      if (cursor_.Take(',')) continue;
      HEDDLE_RETURN_IF_ERROR(cursor_.Expect(')', "or `,` after an input"));
      break;
    }
    if (cursor_.Peek() == ' ' || cursor_.Peek() == '-') {
      // `-> "f32[4]"`
      size_t colon = text().find(":\n", cursor_.offset());
      if (colon != std::string_view::npos) cursor_.set_offset(colon);
    }
    return cursor_.Expect(':', "after the inputs");
  }

  // What stands behind `:`. Classes as annotations say nothing of shapes.
  std::optional<Type> Annotation() {
    cursor_.SkipSpace();
    std::optional<std::string_view> quoted = cursor_.TakeString();
    if (quoted) return ParseFxType(*quoted);
    cursor_.TakeDotted();
    if (cursor_.Peek() == '[') {
      size_t end = text().find(']', cursor_.offset());
      if (end != std::string_view::npos) cursor_.set_offset(end + 1);
    }
    return std::nullopt;
  }

  // False at the `return`.
  Result<bool> ReadStatement() {
    cursor_.SkipSpace();
    ForeignCall call;
    call.offset = cursor_.offset();
    if (cursor_.AtEnd())
      return cursor_.Fail(call.offset, 1, Diag::kSyntax, "`forward` ends without a `return`");
    if (cursor_.TakeWord("return")) return ReadReturn();
    call.name = cursor_.TakeName();
    cursor_.SkipBlanks();
    if (call.name.empty())
      return cursor_.Fail(call.offset, 1, Diag::kSyntax,
                          "expected a statement as in `mm = torch.ops.aten.mm.default(a, b)`");
    if (cursor_.Peek() == '.') {
      // A call for its effect, without a name.
      cursor_.set_offset(call.offset);
      call.name = {};
    } else {
      if (cursor_.Take(':')) call.stated = Annotation();
      HEDDLE_RETURN_IF_ERROR(cursor_.Expect('=', "after the name of a result"));
    }
    HEDDLE_RETURN_IF_ERROR(ReadRightSide(call));
    cursor_.SkipBlanks();
    char next = cursor_.Peek();
    if (next != '\0' && next != '\n' && next != ';' && next != '#')
      return cursor_.Fail(cursor_.offset(), 1, Diag::kSyntax,
                          "a statement goes on where it should end");
    cursor_.SkipLine();
    ++program_.statements;
    if (!call.target.empty()) program_.calls.push_back(std::move(call));
    return true;
  }

  Result<bool> ReadReturn() {
    program_.outputs_offset = cursor_.offset() - 6;
    HEDDLE_TRY(ForeignValue value, cursor_.Value());
    if (value.kind == Kind::kList) {
      for (const ForeignValue& item : program_.items(value)) program_.outputs.push_back({item});
    } else if (value.kind != Kind::kNone) {
      program_.outputs.push_back({value});
    }
    return false;
  }

  Status ReadRightSide(ForeignCall& call) {
    cursor_.SkipSpace();
    size_t begin = cursor_.offset();
    std::string_view word = cursor_.TakeDotted();
    if (word.starts_with("self.") && cursor_.Peek() != '(') {
      // A submodule or constant: nothing to run. `self.` is not followed by a call in printed graphs.
      call.target = {};
      return Done{};
    }
    if (!word.empty() && cursor_.Peek() == '(') {
      cursor_.set_offset(cursor_.offset() + 1);
      call.target = word.starts_with("torch.ops.") ? word.substr(10) : word;
      if (call.target.starts_with("_operator.")) call.target.remove_prefix(1);
      return cursor_.Arguments(call.args);
    }
    if (!word.empty() && cursor_.Peek() == '[') {
      call.target = "getitem";
      call.args.push_back({{}, {.kind = Kind::kName, .text = word}});
      cursor_.set_offset(cursor_.offset() + 1);
      HEDDLE_TRY(ForeignValue index, cursor_.Value());
      call.args.push_back({{}, index});
      return cursor_.Expect(']', "after an index");
    }
    cursor_.set_offset(begin);
    return ReadOperator(call);
  }

  // `a + 4`, `a >= 0`, or a value alone.
  Status ReadOperator(ForeignCall& call) {
    size_t begin = cursor_.offset();
    HEDDLE_TRY(ForeignValue left, cursor_.Value());
    call.args.push_back({{}, left});
    cursor_.SkipBlanks();
    for (const Operator& op : kOperators) {
      if (!text().substr(cursor_.offset()).starts_with(op.symbol)) continue;
      cursor_.set_offset(cursor_.offset() + op.symbol.size());
      HEDDLE_TRY(ForeignValue right, cursor_.Value());
      call.args.push_back({{}, right});
      call.target = op.target;
      return Done{};
    }
    return cursor_.Fail(begin, 1, Diag::kSyntax,
                        "expected a call, an item as in `split[0]`, or arithmetic with sizes");
  }

  // An item of a call becomes the name of one of its results.
  Status FoldItems() {
    std::unordered_map<std::string_view, size_t> by_name;
    std::vector<ForeignCall> kept;
    kept.reserve(program_.calls.size());
    for (ForeignCall& call : program_.calls) {
      if (call.target != "getitem" && call.target != "operator.getitem") {
        if (!call.name.empty()) by_name[call.name] = kept.size();
        kept.push_back(std::move(call));
        continue;
      }
      auto of = call.args.size() == 2 && call.args[0].value.kind == Kind::kName
                    ? by_name.find(call.args[0].value.text)
                    : by_name.end();
      if (of == by_name.end())
        return cursor_.Fail(call.offset, call.name.size(), Diag::kUndefinedValue,
                            "`{}` is an item of something that no statement before it makes",
                            call.name);
      const ForeignValue& at = call.args[1].value;
      if (at.kind != Kind::kInt && at.kind != Kind::kString)
        return cursor_.Fail(call.offset, call.name.size(), Diag::kBadLiteral,
                            "`{}` is an item, but neither by number nor by name", call.name);
      ForeignCall& source = kept[of->second];
      source.several = true;
      ForeignResult result{call.name, at.integer, {}, std::move(call.stated)};
      if (at.kind == Kind::kString) result.key = at.text;
      source.results.push_back(std::move(result));
      ++program_.statements_folded;
    }
    program_.calls = std::move(kept);
    return Done{};
  }

  // --- load_args: what the arguments are

  Status ReadLoadArgs() {
    constexpr std::string_view kLoad = "def load_args(reader):";
    size_t at = text().find(kLoad);
    if (at == std::string_view::npos) return Done{};
    cursor_.set_offset(at + kLoad.size());
    size_t next = 0;
    while (true) {
      cursor_.SkipSpace();
      size_t begin = cursor_.offset();
      std::string_view word = cursor_.TakeDotted();
      if (word.empty() || word == "def" || word == "load_args._version" || word == "mod") break;
      if (word == "reader.tensor" || word == "reader.symint") {
        if (next == program_.inputs.size())
          return cursor_.Fail(begin, word.size(), Diag::kOperandCount,
                              "`load_args` has more arguments than `forward`, which has {}", next);
        HEDDLE_RETURN_IF_ERROR(ReadArgument(word == "reader.symint", program_.inputs[next++]));
      } else if (!word.starts_with("reader.") && word.find('.') == std::string_view::npos) {
        HEDDLE_RETURN_IF_ERROR(ReadAssignment(word));
      } else {
        return cursor_.Fail(begin, word.size(), Diag::kSyntax,
                            "expected `reader.tensor`, `reader.symint`, a storage or a size");
      }
    }
    if (next != program_.inputs.size())
      return cursor_.Fail(at, kLoad.size(), Diag::kOperandCount,
                          "`load_args` has {}, `forward` has {}", Counted(next, "argument"),
                          program_.inputs.size());
    return Done{};
  }

  // `buf0 = reader.storage(...)`, whose tensor says everything; `u8 = u9 = 512`.
  Status ReadAssignment(std::string_view name) {
    std::vector<std::string_view> names = {name};
    while (true) {
      HEDDLE_RETURN_IF_ERROR(cursor_.Expect('=', "after a name"));
      cursor_.SkipBlanks();
      size_t begin = cursor_.offset();
      std::string_view word = cursor_.TakeDotted();
      if (word == "reader.storage") {
        cursor_.SkipLine();
        return Done{};
      }
      cursor_.SkipBlanks();
      if (!word.empty() && cursor_.Peek() == '=') {
        names.push_back(word);
        continue;
      }
      cursor_.set_offset(begin);
      HEDDLE_TRY(int64_t size, cursor_.Size(sizes_));
      for (std::string_view one : names) sizes_[one] = size;
      return Done{};
    }
  }

  // `(buf0, (2, 8192), dtype=torch.int64, is_leaf=True)  # primals_1`
  Status ReadArgument(bool is_size, ForeignInput& input) {
    size_t begin = cursor_.offset();
    HEDDLE_RETURN_IF_ERROR(cursor_.Expect('(', "after the reader"));
    if (is_size) {
      HEDDLE_TRY(input.integer, cursor_.Size(sizes_));
      return cursor_.Expect(')', "after a size");
    }
    cursor_.SkipSpace();
    cursor_.TakeName();
    HEDDLE_RETURN_IF_ERROR(cursor_.Expect(',', "after the storage"));
    HEDDLE_TRY(Dims dims, ReadSizes());
    DType dtype = DType::kF32;
    while (cursor_.Take(',')) {
      cursor_.SkipSpace();
      if (cursor_.Peek() == '(') {
        HEDDLE_TRY(Dims strides, ReadSizes());
        continue;
      }
      std::string_view name = cursor_.TakeName();
      if (name.empty()) break;
      HEDDLE_RETURN_IF_ERROR(cursor_.Expect('=', "after the name of an argument"));
      size_t at = cursor_.offset();
      HEDDLE_TRY(ForeignValue value, cursor_.Value());
      if (name != "dtype") continue;
      std::optional<DType> given = ParseTorchDType(value.text);
      if (!given)
        return cursor_.Fail(at, std::max<size_t>(1, value.text.size()), Diag::kBadType,
                            "`{}` is not an element type that Heddle has", value.text);
      dtype = *given;
    }
    HEDDLE_RETURN_IF_ERROR(cursor_.Expect(')', "after an argument"));
    if (!CheckedBytes(SymbolTable(), dims, dtype))
      return cursor_.Fail(begin, 1, Diag::kSizeOverflow, "input `{}` exceeds 2^63 bytes",
                          input.name);
    Type type = Type::Tensor(dtype, std::move(dims));
    if (input.type && *input.type != type)
      return cursor_.Fail(begin, 1, Diag::kShapeMismatch,
                          "input `{}` has another type here than in `forward`", input.name);
    input.type = std::move(type);
    return Done{};
  }

  Result<Dims> ReadSizes() {
    Dims dims;
    HEDDLE_RETURN_IF_ERROR(cursor_.Expect('(', "before sizes"));
    while (!cursor_.Take(')')) {
      cursor_.SkipSpace();
      size_t begin = cursor_.offset();
      HEDDLE_TRY(int64_t size, cursor_.Size(sizes_));
      if (size < 0) return cursor_.Fail(begin, 1, Diag::kBadSize, "a size is {}", size);
      dims.push_back(size);
      if (cursor_.Take(',')) continue;
      HEDDLE_RETURN_IF_ERROR(cursor_.Expect(')', "or `,` after a size"));
      break;
    }
    return dims;
  }

  // --- Process groups: `{'0': {'size': 8, 'rank': 0}}`

  Status ReadGroups() {
    size_t at = text().find("def get_pg_config(");
    at = at != std::string_view::npos ? text().find("return", at)
                                      : text().find("setup_fake_process_groups({");
    if (at == std::string_view::npos) return Done{};
    at = text().find('{', at);
    if (at == std::string_view::npos) return Done{};
    cursor_.set_offset(at);
    HEDDLE_TRY(ForeignValue groups, cursor_.Value());
    std::span<const ForeignValue> items = program_.items(groups);
    for (size_t i = 0; i + 1 < items.size(); i += 2) {
      ForeignGroup group{items[i].text, 0};
      std::span<const ForeignValue> facts = program_.items(items[i + 1]);
      for (size_t k = 0; k + 1 < facts.size(); k += 2) {
        if (facts[k].text == "size") group.size = facts[k + 1].integer;
      }
      if (items[i].kind != Kind::kString || group.size < 1 || group.size > Mesh::kMaxRanks)
        return cursor_.Fail(at, 1, Diag::kMeshSize, "process group `{}` has {} ranks", group.name,
                            group.size);
      program_.groups.push_back(group);
    }
    return Done{};
  }

  static constexpr std::string_view kClass = "class ";

  SourceText source_;
  ForeignProgram program_;
  PythonCursor cursor_;
  // Sizes that `load_args` gives by name.
  PythonCursor::Symbols sizes_;
};

}  // namespace

Result<ForeignProgram> ReadFx(std::string_view text, const std::string& file) {
  return FxReader(text, file).Read();
}

std::optional<DType> ParseTorchDType(std::string_view word) {
  if (!word.starts_with("torch.")) return std::nullopt;
  word.remove_prefix(6);
  for (const TorchDType& one : kTorchDTypes) {
    if (one.word == word) return one.dtype;
  }
  return std::nullopt;
}

std::optional<Type> ParseFxType(std::string_view text) {
  text = Trim(text);
  size_t open = text.find('[');
  size_t close = text.find(']');
  if (open == std::string_view::npos || close == std::string_view::npos || close < open)
    return std::nullopt;
  const TorchDType* dtype = nullptr;
  for (const TorchDType& one : kTorchDTypes) {
    if (one.abbreviation == text.substr(0, open) && dtype == nullptr) dtype = &one;
  }
  if (dtype == nullptr) return std::nullopt;
  Dims dims;
  std::string_view sizes = Trim(text.substr(open + 1, close - open - 1));
  if (!sizes.empty()) {
    for (std::string_view word : Split(sizes, ',')) {
      word = Trim(word);
      int64_t size = 0;
      auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), size);
      if (error != std::errc() || end != word.data() + word.size() || size < 0) return std::nullopt;
      dims.push_back(size);
    }
  }
  if (!CheckedBytes(SymbolTable(), dims, dtype->dtype)) return std::nullopt;
  return Type::Tensor(dtype->dtype, std::move(dims));
}

}  // namespace heddle
