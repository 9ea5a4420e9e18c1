#include "heddle/import/read/fx_reader.h"

#include <algorithm>

#include "heddle/core/base/text.h"
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
// Longer operators first.
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
    if (!FindForward() || !ReadSignature() || !ReadStatements()) return cursor_.TakeFailure();
    if (bad_item_) return *std::move(bad_item_);
    program_.statements_folded = item_calls_.size();
    program_.AssignResults(item_calls_);
    if (!ReadReproArgs(text(), cursor_, program_)) return cursor_.TakeFailure();
    return std::move(program_);
  }

 private:
  std::string_view text() const { return source_.text(); }

  // The name after `class` at this position.
  std::string_view ClassAt(size_t at) const {
    size_t begin = at + kClass.size();
    size_t end = text().find_first_of("(:\n", begin);
    return end == std::string_view::npos ? std::string_view() : text().substr(begin, end - begin);
  }

  bool FindForward() {
    constexpr std::string_view kForward = "def forward(";
    size_t at = text().find(kForward);
    if (at == std::string_view::npos)
      return cursor_.Fail(0, 1, Diag::kSyntax,
                          "the file has no method `forward`; expected the output of "
                          "`print_readable` or a repro of Inductor");
    size_t chosen = at;
    std::string_view chosen_class;
    std::string_view last_class;
    size_t before = 0;
    for (bool first = true; at != std::string_view::npos; at = text().find(kForward, at + 1)) {
      // The last one since the previous `forward`.
      size_t behind = text().substr(before, at - before).rfind(kClass);
      if (behind != std::string_view::npos) last_class = ClassAt(before + behind);
      before = at;
      bool repro = last_class == "Repro";
      if (first || repro) {
        chosen = at;
        chosen_class = last_class;
      }
      if (repro) break;
      first = false;
    }
    program_.name = std::string(IdentifierOr(chosen_class, "graph"));
    cursor_.set_offset(chosen + kForward.size());
    return true;
  }

  static std::string_view IdentifierOr(std::string_view name, std::string_view otherwise) {
    bool good = !name.empty() && std::ranges::all_of(name, [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
    });
    return good ? name : otherwise;
  }

  // `self, arg0_1: "f32[4, 4]", arg1_1):`
  bool ReadSignature() {
    bool first = true;
    while (!cursor_.Take(')')) {
      ForeignInput input;
      input.offset = cursor_.offset();
      std::string_view name = cursor_.TakeName();
      if (name.empty())
        return cursor_.Fail(cursor_.offset(), 1, Diag::kSyntax, "expected the name of an input");
      input.name = program_.Word(name);
      if (cursor_.Take(':')) input.type = Annotation();
      if (!first || name != "self") program_.inputs.push_back(input);
      first = false;
      if (cursor_.Take(',')) continue;
      if (!cursor_.Expect(')', "or `,` after an input")) return false;
      break;
    }
    program_.arguments = program_.inputs.size();
    if (cursor_.Peek() == ' ' || cursor_.Peek() == '-') {
      // `-> "f32[4]"`
      size_t colon = text().find(":\n", cursor_.offset());
      if (colon != std::string_view::npos) cursor_.set_offset(colon);
    }
    return cursor_.Expect(':', "after the inputs");
  }

  // The type after `:`, or null. Annotations that are Python classes state no shape.
  const Type* Annotation() {
    cursor_.SkipSpace();
    if (std::optional<std::string_view> quoted = cursor_.TakeString()) return TypeOf(*quoted);
    cursor_.TakeDotted();
    if (cursor_.Peek() == '[') {
      size_t end = text().find(']', cursor_.offset());
      if (end != std::string_view::npos) cursor_.set_offset(end + 1);
    }
    return nullptr;
  }

  const Type* TypeOf(std::string_view annotation) {
    std::optional<Type> type = ParseFxType(annotation);
    return type ? &program_.types.emplace_back(*std::move(type)) : nullptr;
  }

  bool ReadStatements() {
    while (true) {
      cursor_.SkipSpace();
      if (cursor_.AtEnd())
        return cursor_.Fail(cursor_.offset(), 1, Diag::kSyntax,
                            "`forward` ends without a `return`");
      if (cursor_.Peek() == 'r' && cursor_.TakeWord("return")) return ReadReturn();
      if (!ReadStatement()) return false;
    }
  }

  bool ReadStatement() {
    ForeignCall call;
    call.offset = cursor_.offset();
    std::string_view name = cursor_.TakeName();
    cursor_.SkipBlanks();
    if (name.empty())
      return cursor_.Fail(call.offset, 1, Diag::kSyntax,
                          "expected a statement as in `mm = torch.ops.aten.mm.default(a, b)`");
    if (cursor_.Peek() == '.') {
      // A call for its effect, without a result name.
      cursor_.set_offset(call.offset);
      return ReadCall(call, {});
    }
    if (cursor_.Peek() == ',') return ReadFlattening(call.offset);
    if (cursor_.Take(':')) {
      call.stated = Annotation();
      cursor_.SkipBlanks();
      if (cursor_.Peek() == ';') return ReadDeclaration(name, call.stated);
    }
    return cursor_.Expect('=', "after the name of a result") && ReadCall(call, name);
  }

  // `params_1: "f32[32, 16]"; `: the type of an input inside a dictionary, list or tuple.
  bool ReadDeclaration(std::string_view name, const Type* type) {
    cursor_.set_offset(cursor_.offset() + 1);
    WordId word = program_.Word(name);
    declared_.resize(program_.words.size());
    declared_[word] = type;
    return true;
  }

  // `params_1, params_2, x_1, = fx_pytree.tree_flatten_spec([params, x], self._in_spec)`: the
  // inputs of the graph are on the left. The arguments of `forward` contain them.
  bool ReadFlattening(size_t begin) {
    std::vector<ForeignInput> inputs;
    cursor_.set_offset(begin);
    while (!cursor_.Take('=')) {
      ForeignInput input;
      input.offset = cursor_.offset();
      std::string_view name = cursor_.TakeName();
      if (name.empty())
        return cursor_.Fail(cursor_.offset(), 1, Diag::kSyntax, "expected the name of an input");
      input.name = program_.Word(name);
      declared_.resize(program_.words.size());
      input.type = declared_[input.name];
      inputs.push_back(input);
      cursor_.SkipBlanks();
      if (!cursor_.Take(',')) break;
      cursor_.SkipBlanks();
    }
    cursor_.Take('=');
    cursor_.SkipBlanks();
    if (!cursor_.TakeText("fx_pytree.tree_flatten_spec(") || !program_.calls.empty())
      return cursor_.Fail(begin, 1, Diag::kSyntax,
                          "a statement assigns several names; only inputs may be, from "
                          "`fx_pytree.tree_flatten_spec`, before the first statement");
    program_.inputs = std::move(inputs);
    program_.arguments = program_.inputs.size();
    cursor_.SkipLine();
    return true;
  }

  // Reads the text from `=` to the end of the line.
  bool ReadCall(ForeignCall& call, std::string_view name) {
    call.first_arg = static_cast<uint32_t>(program_.args.size());
    if (!ReadRightSide(call, name)) return false;
    call.arg_count = static_cast<uint32_t>(program_.args.size()) - call.first_arg;
    cursor_.SkipBlanks();
    char next = cursor_.Peek();
    if (next != '\0' && next != '\n' && next != ';' && next != '#')
      return cursor_.Fail(cursor_.offset(), 1, Diag::kSyntax, "unexpected text after a statement");
    cursor_.SkipLine();
    ++program_.statements;
    if (call.target == getitem_ || call.target == operator_getitem_) {
      FoldCall(call);
    } else if (call.target) {
      named_calls_.resize(program_.words.size(), kNoCall);
      if (call.name) named_calls_[call.name] = static_cast<uint32_t>(program_.calls.size());
      program_.calls.push_back(call);
    }
    return true;
  }

  bool ReadReturn() {
    program_.output_call.offset = cursor_.offset() - 6;
    program_.output_call.name = program_.Word("output");
    cursor_.SkipBlanks();
    // The tree that the graph returns. Its leaves are the outputs.
    cursor_.TakeText("pytree.tree_unflatten(");
    ForeignValue value;
    if (!cursor_.Value(value)) return false;
    if (value.kind == Kind::kList) {
      program_.outputs.reserve(value.range.count);
      for (const ForeignValue& item : program_.items(value)) AddOutput(item);
    } else if (value.kind != Kind::kNone) {
      AddOutput(value);
    }
    return true;
  }

  void AddOutput(const ForeignValue& value) {
    program_.outputs.push_back({.value = value, .offset = program_.output_call.offset});
  }

  bool ReadRightSide(ForeignCall& call, std::string_view name) {
    call.name = program_.Word(name);
    cursor_.SkipSpace();
    size_t begin = cursor_.offset();
    std::string_view word = cursor_.TakeDotted();
    char next = cursor_.Peek();
    if (word.starts_with("self.") && next != '(') {
      AddConstant(call, word.substr(5));
      return true;
    }
    if (!word.empty() && next == '(') {
      cursor_.set_offset(cursor_.offset() + 1);
      call.target = TargetOf(word);
      return cursor_.Arguments();
    }
    if (!word.empty() && next == '[') {
      cursor_.set_offset(cursor_.offset() + 1);
      return ReadItem(call, program_.Word(word));
    }
    cursor_.set_offset(begin);
    return ReadOperator(call);
  }

  TargetId TargetOf(std::string_view callee) {
    if (callee.starts_with("torch.ops.")) callee.remove_prefix(10);
    if (callee.starts_with("_operator.")) callee.remove_prefix(1);
    return program_.targets.Intern(callee);
  }

  // `split_3[0]`, after its opening bracket.
  bool ReadItem(const ForeignCall& call, WordId of) {
    ForeignValue at;
    if (!cursor_.Value(at) || !cursor_.Expect(']', "after an index")) return false;
    FoldItem(call, of, at);
    return true;
  }

  // `_tensor_constant0 = self._tensor_constant0`: a tensor of the module, which becomes an input. A
  // submodule has no type and is skipped.
  void AddConstant(const ForeignCall& call, std::string_view label) {
    bool is_tensor = call.stated != nullptr || label.starts_with("_tensor_constant");
    if (!is_tensor || !call.name) return;
    ForeignInput input;
    input.offset = call.offset;
    input.name = call.name;
    input.type = call.stated;
    input.label = program_.Word(label);
    program_.inputs.push_back(input);
  }

  // `a + 4`, `a >= 0`, or a single value.
  bool ReadOperator(ForeignCall& call) {
    size_t begin = cursor_.offset();
    ForeignArg left;
    if (!cursor_.Value(left.value)) return false;
    program_.args.push_back(left);
    cursor_.SkipBlanks();
    for (const auto& [symbol, target] : kOperators) {
      if (!cursor_.TakeText(symbol)) continue;
      ForeignArg right;
      if (!cursor_.Value(right.value)) return false;
      program_.args.push_back(right);
      call.target = program_.targets.Intern(target);
      return true;
    }
    return cursor_.Fail(begin, 1, Diag::kSyntax,
                        "expected a call, an item as in `split[0]`, or arithmetic with sizes");
  }

  // `operator.getitem(split_3, 0)`
  void FoldCall(const ForeignCall& call) {
    std::span<const ForeignArg> args = program_.args_of(call);
    bool named = args.size() == 2 && args[0].value.kind == Kind::kName;
    FoldItem(call, named ? args[0].value.word : WordId(), named ? args[1].value : ForeignValue());
  }

  // Converts an item of a call to the name of one of its results. Reports items that it cannot
  // convert after all statements were read.
  void FoldItem(const ForeignCall& call, WordId of, const ForeignValue& at) {
    if (bad_item_) return;
    uint32_t source = of ? CallNamed(of) : kNoCall;
    if (source == kNoCall)
      return FailItem(call, Diag::kUndefinedValue,
                      "`{}` is an item of a value that is not defined before it");
    if (at.kind != Kind::kInt && at.kind != Kind::kString)
      return FailItem(call, Diag::kBadLiteral,
                      "the index of item `{}` is neither a number nor a name");
    program_.calls[source].several = true;
    program_.results.push_back({call.name, at.word, at.integer, call.stated});
    item_calls_.push_back(source);
  }

  // The last call with this name, or kNoCall.
  uint32_t CallNamed(WordId name) const {
    return name.index() < named_calls_.size() ? named_calls_[name] : kNoCall;
  }

  void FailItem(const ForeignCall& call, Diag kind, fmt::format_string<std::string_view&> format) {
    std::string_view name = program_.text(call.name);
    cursor_.Fail(call.offset, name.size(), kind, format, name);
    bad_item_ = cursor_.TakeFailure();
  }

  static constexpr std::string_view kClass = "class ";
  static constexpr uint32_t kNoCall = UINT32_MAX;

  SourceText source_;
  ForeignProgram program_;
  PythonCursor cursor_;
  // The targets of calls that return an item.
  TargetId getitem_ = program_.targets.Intern("getitem");
  TargetId operator_getitem_ = program_.targets.Intern("operator.getitem");
  // The calls of all items so far, and the first statement that is not an item.
  std::vector<uint32_t> item_calls_;
  std::optional<Failure> bad_item_;
  // Indexed by name: its last call.
  Table<WordId, uint32_t> named_calls_;
  // Types of inputs inside a dictionary, list or tuple.
  Table<WordId, const Type*> declared_;
};

}  // namespace

Result<ForeignProgram> ReadFx(std::string_view text, const std::string& file) {
  return FxReader(text, file).Read();
}

}  // namespace heddle
