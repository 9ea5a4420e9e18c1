#include "heddle/core/ir/text/op_example.h"

#include "heddle/core/base/scanner.h"
#include "heddle/core/ir/text/parse.h"

namespace heddle {
namespace {

// Converts types to inputs `%a0`, `%a1`, ..., and the rest to a call.
class ExampleText {
 public:
  explicit ExampleText(std::string_view example) : scan_(example) {}

  void Read() {
    while (!scan_.AtEnd()) {
      scan_.SkipSpace();
      if (scan_.Peek() == '"') {
        size_t begin = scan_.offset();
        scan_.TakeQuoted();
        call_ += scan_.text().substr(begin, scan_.offset() - begin);
        continue;
      }
      if (!TakeType()) {
        call_ += scan_.PeekRaw();
        scan_.set_offset(scan_.offset() + 1);
      }
    }
  }

  const std::string& call() const { return call_; }
  const std::string& signature() const { return signature_; }
  const std::vector<ExampleInput>& inputs() const { return inputs_; }

 private:
  // `bf16[8,16]`, after an optional `async` or `host`, and before an optional note on the data.
  bool TakeType() {
    size_t begin = scan_.offset();
    scan_.TakeWord("async");
    scan_.TakeWord("host");
    std::string_view word = scan_.TakeRun(CharClass::kWord);
    if (!ParseDType(word) || scan_.PeekRaw() != '[') {
      scan_.set_offset(begin);
      // Takes whole words, so that the end of a word does not match.
      std::string_view other = scan_.TakeRawRun(CharClass::kWord);
      call_ += other;
      return !other.empty();
    }
    size_t close = scan_.text().find(']', scan_.offset());
    scan_.set_offset(close + 1);
    if (!signature_.empty()) signature_ += ", ";
    std::string name = fmt::format("%a{}", inputs_.size());
    signature_ += fmt::format("{}: {}", name, scan_.text().substr(begin, scan_.offset() - begin));
    call_ += name;
    ExampleInput input;
    if (scan_.TakeWord("below")) {
      input = {ExampleInput::Data::kBelow, scan_.TakeInt().value_or(1)};
    } else if (scan_.TakeWord("rising")) {
      input = {ExampleInput::Data::kRising, scan_.TakeInt().value_or(1)};
    } else if (scan_.TakeWord("probability")) {
      input = {ExampleInput::Data::kProbability, 0};
    }
    inputs_.push_back(input);
    return true;
  }

  Scanner scan_;
  std::string call_;
  std::string signature_;
  std::vector<ExampleInput> inputs_;
};

}  // namespace

Result<Example> MakeExample(const OpTable& ops, OpId op) {
  return MakeExample(ops, op, ops[op].def->example);
}

Result<Example> MakeExample(const OpTable& ops, OpId id, std::string_view call) {
  const Op& op = ops[id];
  ExampleText example(call);
  example.Read();
  // The number of results may depend on the call, so try counts until the types match.
  int fixed = op.schema.FixedResults();
  for (int count = fixed < 0 ? 1 : fixed; count < 16; ++count) {
    std::string results;
    for (int i = 0; i < count; ++i) results += fmt::format("{}%r{}", i == 0 ? "" : ", ", i);
    // A real graph has no async input, but the example of a wait needs one. The verifier is
    // skipped.
    std::string text = fmt::format(
        "heddle 1 {}\nmesh [dp=4, tp=2]\ngraph @example({}) -> ({}) {{\n  {} = {}{}\n}}\n",
        Name(op.def->view.value_or(View::kLocal)), example.signature(), results, results, op.name(),
        example.call());
    Parsed parsed = ParseText(text, std::string(op.name()), ops);
    if (parsed.diagnostics.empty()) return Example{std::move(parsed.module), example.inputs()};
    bool retry = fixed < 0 && parsed.diagnostics[0].kind == Diag::kResultCount;
    if (!retry) return Failure{std::move(parsed.diagnostics)};
  }
  return Error(Diag::kResultCount, "the example of {} has too many results", op.name());
}

}  // namespace heddle
