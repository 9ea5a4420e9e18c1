// PythonCursor: reads the little of Python that printed graphs consist of: names, literals, calls, sizes.
//
// What reads something answers whether it could. The first thing that could not be read is kept as the failure.
#pragma once

#include <array>
#include <unordered_map>

#include "heddle/base/result.h"
#include "heddle/base/scanner.h"
#include "heddle/import/read/program.h"

namespace heddle {

class PythonCursor {
 public:
  // Both outlive this. Words, and items of lists, go to `program`.
  PythonCursor(const SourceText& source, ForeignProgram& program)
      : source_(source), text_(source.text()), program_(program) {}

  size_t offset() const { return at_; }
  void set_offset(size_t offset) { at_ = offset; }
  bool AtEnd() const { return at_ >= text_.size(); }
  std::string_view text() const { return text_; }

  // Blanks on this line; in brackets a line end is a blank, too, and so is a comment.
  void SkipBlanks() {
    while (at_ < text_.size() && IsBlank(text_[at_])) ++at_;
  }
  void SkipSpace() {
    while (at_ < text_.size()) {
      char c = text_[at_];
      // All that is skipped comes before the letters, but for the end of a line that goes on.
      if (c > '#' && c != '\\') return;
      if (IsBlank(c) || c == '\n' || c == '\\') {
        ++at_;
      } else if (c == '#') {
        SkipLine();
      } else {
        return;
      }
    }
  }
  // As SkipSpace, where a line begins.
  void SkipIndent() {
    constexpr std::string_view kBlanks = "        ";
    while (text_.substr(at_, kBlanks.size()) == kBlanks) at_ += kBlanks.size();
    SkipSpace();
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
  // Takes just this if it stands here.
  bool TakeText(std::string_view text) {
    if (!text_.substr(at_).starts_with(text)) return false;
    at_ += text.size();
    return true;
  }
  // `a`, or `a.b.c`; empty if none stands here.
  std::string_view TakeName() {
    size_t begin = at_;
    if (IsDigit(Peek())) return {};
    size_t end = begin;
    while (end < text_.size() && IsWordChar(text_[end])) ++end;
    at_ = end;
    return text_.substr(begin, end - begin);
  }
  std::string_view TakeDotted();
  // A string in single or double quotes, what stands between them.
  std::optional<std::string_view> TakeString();

  bool Expect(char c, std::string_view where) {
    return Take(c) || Fail(at_, 1, Diag::kSyntax, "expected `{}` {}", c, where);
  }
  // The name of a statement, which the next ones are likely to ask for.
  WordId NameWord(const StringTable<WordId>::Key& key);
  bool Value(ForeignValue& value) { return Value(value, 0); }
  // What stands behind the last argument of a call that has a name in it, to the end of the call: literals, which say the same wherever
  // they stand.
  using TailId = Id<struct TailTag>;
  // `(a, b, name=c)`, the opening parenthesis already taken. The arguments go to the program, behind those that it has. `likely` are tails
  // of calls before that this one may have, too; `tail` becomes its own.
  bool Arguments(std::array<TailId, 2> likely, TailId& tail);
  // A size: whole numbers and names with + - * // and parentheses.
  using Symbols = std::unordered_map<std::string_view, int64_t>;
  bool Size(const Symbols& symbols, int64_t& size) { return Sum(symbols, 0, size); }

  // Always false.
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
  // What a word that was taken stands for, alone: a name, or a literal.
  void SetName(std::string_view name, ForeignValue& value);
  // What begins with a word that was taken: a name, a constant or a call.
  bool WordValue(size_t begin, std::string_view word, ForeignValue& value);
  bool Argument(ForeignArg& arg);
  struct Tail {
    std::string_view text;
    // In ForeignProgram::args.
    uint32_t first;
    uint32_t count;
    // There is no argument before it.
    bool is_all;
  };
  bool TakeTail(TailId id, bool is_all) {
    if (!id) return false;
    const Tail& tail = tails_[id];
    if (tail.is_all != is_all || Peek() != tail.text[0] || !TakeText(tail.text)) return false;
    for (size_t i = 0; i < tail.count; ++i) program_.args.push_back(program_.args[tail.first + i]);
    return true;
  }
  // Of a value that was just taken.
  ForeignValue NameValue(WordId word) {
    name_end_ = at_;
    return ForeignValue::Of(ForeignValue::Kind::kName, word);
  }
  struct Recent {
    std::string_view name;
    WordId word;
  };
  // Whether this name, and nothing else, stands here as an argument.
  bool IsHere(const Recent& recent) const {
    std::string_view rest = text_.substr(at_);
    size_t size = recent.name.size();
    if (size == 0 || rest.size() <= size || (rest[size] != ',' && rest[size] != ')')) return false;
    return rest.starts_with(recent.name);
  }
  bool List(char close, int depth, ForeignValue& list);
  bool Dict(int depth, ForeignValue& dict);
  bool Number(ForeignValue& value);
  bool SmallInt(ForeignValue& value);
  bool SkipCall();
  bool Sum(const Symbols& symbols, int depth, int64_t& sum);
  bool Product(const Symbols& symbols, int depth, int64_t& product);
  bool Factor(const Symbols& symbols, int depth, int64_t& factor);

  const SourceText& source_;
  std::string_view text_;
  ForeignProgram& program_;
  size_t at_ = 0;
  // Behind the last name of a value.
  size_t name_end_ = 0;
  // The last two names of statements.
  Recent newest_;
  Recent older_;
  Table<TailId, Tail> tails_;
  // Items of lists that have not ended yet.
  std::vector<ForeignValue> open_items_;
  Failure failure_;
};

}  // namespace heddle
