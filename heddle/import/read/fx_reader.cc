#include "heddle/import/read/fx_reader.h"

#include <algorithm>
#include <unordered_map>

#include "heddle/base/text.h"
#include "heddle/import/read/python_cursor.h"
#include "heddle/import/read/repro_args.h"
#include "heddle/import/read/torch_types.h"

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;

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
    program_.arguments = program_.inputs.size();
    while (true) {
      HEDDLE_TRY(bool more, ReadStatement());
      if (!more) break;
    }
    HEDDLE_RETURN_IF_ERROR(FoldItems());
    HEDDLE_RETURN_IF_ERROR(ReadReproArgs(text(), cursor_, program_));
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
      AddConstant(call, word.substr(5));
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

  // `_tensor_constant0 = self._tensor_constant0`: a tensor of the module, which somebody has to hand in. A submodule has no type, and
  // nothing to run.
  void AddConstant(ForeignCall& call, std::string_view label) {
    call.target = {};
    bool is_tensor = call.stated || label.starts_with("_tensor_constant");
    if (!is_tensor || call.name.empty()) return;
    program_.inputs.push_back({.offset = call.offset,
                               .name = call.name,
                               .type = call.stated,
                               .integer = {},
                               .role = InputRole::kPlain,
                               .label = label});
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

  static constexpr std::string_view kClass = "class ";

  SourceText source_;
  ForeignProgram program_;
  PythonCursor cursor_;
};

}  // namespace

Result<ForeignProgram> ReadFx(std::string_view text, const std::string& file) {
  return FxReader(text, file).Read();
}

}  // namespace heddle
