// PythonCursor: reads the little of Python that printed graphs consist of: names, literals, calls, sizes.
#pragma once

#include <unordered_map>

#include "heddle/base/result.h"
#include "heddle/import/read/program.h"

namespace heddle {

class PythonCursor {
 public:
  // Both outlive this. Items of lists go to `program`.
  PythonCursor(const SourceText& source, ForeignProgram& program)
      : source_(source), text_(source.text()), program_(program) {}

  size_t offset() const { return at_; }
  void set_offset(size_t offset) { at_ = offset; }
  bool AtEnd() const { return at_ >= text_.size(); }
  std::string_view text() const { return text_; }

  // Blanks on this line; in brackets a line end is a blank, too, and so is a comment.
  void SkipBlanks();
  void SkipSpace();
  // To the first character of the next line.
  void SkipLine();
  char Peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(char c);
  bool TakeWord(std::string_view word);
  // `a`, or `a.b.c`; empty if none stands here.
  std::string_view TakeName();
  std::string_view TakeDotted();
  // A string in single or double quotes, what stands between them.
  std::optional<std::string_view> TakeString();

  Status Expect(char c, std::string_view where);
  Result<ForeignValue> Value() { return Value(0); }
  // `(a, b, name=c)`, the opening parenthesis already taken.
  Status Arguments(std::vector<ForeignArg>& args);
  // A size: whole numbers and names with + - * // and parentheses.
  using Symbols = std::unordered_map<std::string_view, int64_t>;
  Result<int64_t> Size(const Symbols& symbols) { return Sum(symbols, 0); }

  template <typename... Args>
  Failure Fail(size_t offset, size_t width, Diag kind, fmt::format_string<Args...> format,
               Args&&... args) const {
    Diagnostic diagnostic = MakeDiagnostic(kind, format, std::forward<Args>(args)...);
    return {{source_.At(std::move(diagnostic), std::min(offset, text_.size()), width)}};
  }

 private:
  Result<ForeignValue> Value(int depth);
  Result<ForeignValue> List(char close, int depth);
  Result<ForeignValue> Dict(int depth);
  Result<ForeignValue> Number();
  Status SkipCall();
  Result<int64_t> Sum(const Symbols& symbols, int depth);
  Result<int64_t> Product(const Symbols& symbols, int depth);
  Result<int64_t> Factor(const Symbols& symbols, int depth);

  const SourceText& source_;
  std::string_view text_;
  ForeignProgram& program_;
  size_t at_ = 0;
};

}  // namespace heddle
