// PythonCursor: parses the subset of Python in printed graphs: names, literals, calls, sizes.
//
// Parsing functions return whether they succeeded. The cursor keeps the first failure.
#pragma once

#include <unordered_map>

#include "heddle/core/base/result.h"
#include "heddle/core/base/scanner.h"
#include "heddle/import/read/program.h"

namespace heddle {

class PythonCursor {
 public:
  // Both must outlive this. Words and list items are added to `program`.
  PythonCursor(const SourceText& source, ForeignProgram& program)
      : source_(source), text_(source.text()), program_(program) {}

  size_t offset() const { return at_; }
  void set_offset(size_t offset) { at_ = offset; }
  bool AtEnd() const { return at_ >= text_.size(); }
  std::string_view text() const { return text_; }

  // Skips blanks on this line. Inside brackets it also skips line ends and comments.
  void SkipBlanks() {
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
  }
  void SkipSpace() {
    while (at_ < text_.size()) {
      char c = text_[at_];
      if (IsBlank(c) || c == '\n' || c == '\\') {
        ++at_;
      } else if (c == '#') {
        SkipLine();
      } else {
        return;
      }
    }
  }
  // To the first character of the next line.
  void SkipLine() {
    size_t end = text_.find('\n', at_);
    at_ = end == std::string_view::npos ? text_.size() : end + 1;
  }
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(char c) {
    SkipSpace();
    if (Peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  bool TakeWord(std::string_view word);
  // Takes exactly this text if it is next.
  bool TakeText(std::string_view text) {
    if (!text_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  // `a`, or `a.b.c`; empty if no name is next.
  std::string_view TakeName() {
    size_t begin = at_;
    if (IsDigit(Peek())) return {};
    size_t end = begin;
    while (end < text_.size() && IsWordChar(text_[end])) ++end;
    at_ = end;
    return text_.substr(begin, end - begin);
  }
  std::string_view TakeDotted();
  // The content of a string in single or double quotes.
  std::optional<std::string_view> TakeString();

  bool Expect(char c, std::string_view where) {
    return Take(c) || Fail(at_, 1, Diag::kSyntax, "expected `{}` {}", c, where);
  }
  bool Value(ForeignValue& value) { return Value(value, 0); }
  // `(a, b, name=c)`, after its opening parenthesis. Appends the arguments to the program.
  bool Arguments();
  // Evaluates a size: whole numbers and names with + - * // and parentheses.
  using Symbols = std::unordered_map<std::string_view, int64_t>;
  bool Size(const Symbols& symbols, int64_t& size) { return Sum(symbols, 0, size); }

  // Returns false.
  template <typename... Args>
  bool Fail(size_t offset, size_t width, Diag kind, fmt::format_string<Args...> format,
            Args&&... args) {
    Diagnostic diagnostic = MakeDiagnostic(kind, format, std::forward<Args>(args)...);
    failure_ = {{source_.At(std::move(diagnostic), std::min(offset, text_.size()), width)}};
    return false;
  }
  Failure TakeFailure() { return std::move(failure_); }

 private:
  static bool IsBlank(char c) { return c == ' ' || c == '\t' || c == '\r'; }
  static bool IsDigit(char c) { return c >= '0' && c <= '9'; }
  static bool IsWordChar(char c) {
    return (kCharClasses[static_cast<unsigned char>(c)] & CharClass::kWord) != 0;
  }

  bool Value(ForeignValue& value, int depth);
  // The value of a dotted word that begins at `begin` and was just taken: a name, a literal, a
  // constant or a call.
  bool WordValue(size_t begin, std::string_view word, ForeignValue& value);
  bool Argument(ForeignArg& arg);
  bool List(char close, int depth, ForeignValue& list);
  bool Dict(int depth, ForeignValue& dict);
  bool Number(ForeignValue& value);
  bool SkipCall();
  bool Sum(const Symbols& symbols, int depth, int64_t& sum);
  bool Product(const Symbols& symbols, int depth, int64_t& product);
  bool Factor(const Symbols& symbols, int depth, int64_t& factor);

  const SourceText& source_;
  std::string_view text_;
  ForeignProgram& program_;
  size_t at_ = 0;
  // Items of unfinished lists.
  std::vector<ForeignValue> open_items_;
  Failure failure_;
};

}  // namespace heddle
