#include "heddle/core/ir/text/locate.h"

#include "heddle/core/base/scanner.h"

namespace heddle {
namespace {

// The bytes of a node's text that a subject is about: its op, an operand, or a result's type.
TextRange LocateInNode(std::string_view text, size_t begin, const Subject& subject) {
  Scanner scan(text);
  scan.set_offset(begin);
  while (scan.Peek() == '%' || scan.Peek() == ',') {
    scan.Take(',');
    scan.Take('%');
    scan.TakeRawRun(CharClass::kName);
  }
  scan.Take('=');
  scan.SkipSpace();
  size_t op = scan.offset();
  size_t op_width = scan.TakeRawRun(CharClass::kName).size();
  if (subject.kind == Subject::Kind::kNode) return {op, op_width};
  // Operands and types are found by counting `%` or top-level commas. Only strings can contain
  // either without meaning it.
  uint32_t seen = 0;
  while (!scan.AtEnd() && scan.Peek() != ')') {
    size_t at = scan.offset();
    if (scan.Peek() == '"') {
      if (!scan.TakeQuoted()) break;
    } else if (scan.Take('%')) {
      size_t width = scan.TakeRawRun(CharClass::kName).size() + 1;
      if (subject.kind == Subject::Kind::kOperand && seen++ == subject.part) return {at, width};
    } else {
      scan.set_offset(at + 1);
    }
  }
  if (subject.kind != Subject::Kind::kResult || !scan.Take(')') || !scan.Take(':'))
    return {op, op_width};
  scan.Take('(');
  int depth = 0;
  for (uint32_t result = 0; result < subject.part && !scan.AtEnd();) {
    char c = scan.Peek();
    depth += c == '[' || c == '{' || c == '(';
    depth -= c == ']' || c == '}' || c == ')';
    result += c == ',' && depth == 0;
    scan.set_offset(scan.offset() + 1);
  }
  scan.SkipSpace();
  size_t at = scan.offset();
  size_t end = text.find(']', at);
  return {at, end == std::string_view::npos ? 1 : end + 1 - at};
}

}  // namespace

TextRange LocateSubject(const Source& source, const Subject& subject) {
  const GraphSource& graph = source.graphs[subject.graph];
  switch (subject.kind) {
    case Subject::Kind::kGraph: return {graph.header, 5};
    case Subject::Kind::kInput: return {graph.inputs[subject.index], 1};
    case Subject::Kind::kOutput: return {graph.outputs[subject.index], 1};
    default: return LocateInNode(source.text, graph.nodes[subject.index], subject);
  }
}

}  // namespace heddle
