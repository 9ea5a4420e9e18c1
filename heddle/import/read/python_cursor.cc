#include "heddle/import/read/python_cursor.h"

#include <algorithm>
#include <charconv>
#include <limits>

namespace heddle {
namespace {

using Kind = ForeignValue::Kind;

// Deeper than any printed graph, but far below the limit of the stack.
constexpr int kDeepestList = 64;

// Sets `value` to the literal `word`. Returns false if the word is a name.
bool TakeLiteral(std::string_view word, ForeignValue& value) {
  if (word == "None") return true;
  if (word == "True" || word == "False") {
    value.kind = Kind::kBool;
    value.boolean = word == "True";
    return true;
  }
  if (word == "inf" || word == "nan" || word == "math.inf" || word == "torch.inf") {
    value.kind = Kind::kFloat;
    value.number = word == "nan" ? std::numeric_limits<double>::quiet_NaN()
                                 : std::numeric_limits<double>::infinity();
    return true;
  }
  return false;
}

}  // namespace

bool PythonCursor::TakeWord(std::string_view word) {
  SkipSpace();
  if (!text_.substr(at_).starts_with(word)) return false;
  size_t end = at_ + word.size();
  if (end < text_.size() && IsWordChar(text_[end])) return false;
  at_ = end;
  return true;
}

std::string_view PythonCursor::TakeDotted() {
  size_t begin = at_;
  while (!TakeName().empty()) {
    if (Peek() != '.') return text_.substr(begin, at_ - begin);
    ++at_;
  }
  at_ = begin;
  return {};
}

std::optional<std::string_view> PythonCursor::TakeString() {
  char quote = Peek();
  if (quote != '\'' && quote != '"') return std::nullopt;
  for (size_t end = at_ + 1; end < text_.size() && text_[end] != '\n'; ++end) {
    if (text_[end] == '\\') {
      ++end;
    } else if (text_[end] == quote) {
      std::string_view inside = text_.substr(at_ + 1, end - at_ - 1);
      at_ = end + 1;
      return inside;
    }
  }
  return std::nullopt;
}

bool PythonCursor::Number(ForeignValue& value) {
  size_t begin = at_;
  size_t end = at_;
  if (end < text_.size() && (text_[end] == '-' || text_[end] == '+')) ++end;
  while (end < text_.size() && (IsWordChar(text_[end]) || text_[end] == '.' ||
                                ((text_[end] == '-' || text_[end] == '+') &&
                                 (text_[end - 1] == 'e' || text_[end - 1] == 'E'))))
    ++end;
  std::string_view word = text_.substr(begin, end - begin);
  at_ = end;
  const char* last = word.data() + word.size();
  const char* first = word.data() + (word.starts_with('+') ? 1 : 0);
  auto whole = std::from_chars(first, last, value.integer);
  if (whole.ec == std::errc() && whole.ptr == last) {
    value.kind = Kind::kInt;
    return true;
  }
  auto real = std::from_chars(first, last, value.number);
  if (real.ec != std::errc() || real.ptr != last)
    return Fail(begin, std::max<size_t>(1, word.size()), Diag::kBadLiteral, "`{}` is not a number",
                word);
  value.kind = Kind::kFloat;
  return true;
}

bool PythonCursor::List(char close, int depth, ForeignValue& list) {
  size_t begin = open_items_.size();
  while (!Take(close)) {
    ForeignValue item;
    if (!Value(item, depth + 1)) return false;
    open_items_.push_back(item);
    if (Take(',')) continue;
    if (!Expect(close, "or `,` in a list")) return false;
    break;
  }
  list = program_.TakeList(Kind::kList, open_items_, begin);
  return true;
}

bool PythonCursor::Dict(int depth, ForeignValue& dict) {
  size_t begin = open_items_.size();
  while (!Take('}')) {
    ForeignValue key;
    ForeignValue value;
    if (!Value(key, depth + 1) || !Expect(':', "after a key") || !Value(value, depth + 1))
      return false;
    open_items_.push_back(key);
    open_items_.push_back(value);
    if (Take(',')) continue;
    if (!Expect('}', "or `,` in a dictionary")) return false;
    break;
  }
  dict = program_.TakeList(Kind::kDict, open_items_, begin);
  return true;
}

bool PythonCursor::Value(ForeignValue& value, int depth) {
  SkipSpace();
  if (depth > kDeepestList)
    return Fail(at_, 1, Diag::kSyntax, "lists are nested more than {} levels deep", kDeepestList);
  char c = Peek();
  if (IsDigit(c)) return Number(value);
  if (c == '[' || c == '(') {
    ++at_;
    return List(c == '[' ? ']' : ')', depth, value);
  }
  if (c == '{') {
    ++at_;
    return Dict(depth, value);
  }
  size_t begin = at_;
  if (std::optional<std::string_view> string = TakeString()) {
    value.kind = Kind::kString;
    value.word = program_.Word(*string);
    return true;
  }
  bool negative = c == '-' && text_.substr(at_).starts_with("-inf");
  if (negative) ++at_;
  std::string_view word = TakeDotted();
  if (word.empty()) {
    at_ = begin;
    if (c == '-' || c == '+' || c == '.') return Number(value);
    return Fail(at_, 1, Diag::kSyntax, "expected a value");
  }
  if (!WordValue(begin, word, value)) return false;
  if (negative && value.kind == Kind::kFloat) value.number = -value.number;
  return true;
}

bool PythonCursor::WordValue(size_t begin, std::string_view word, ForeignValue& value) {
  if (TakeLiteral(word, value)) return true;
  bool dotted = word.find('.') != std::string_view::npos;
  if (!dotted && Peek() != '(') {
    value = ForeignValue::Of(Kind::kName, program_.Word(word));
    return true;
  }
  if (Peek() == '(') {
    if (!SkipCall()) return false;
    word = text_.substr(begin, at_ - begin);
  }
  value = ForeignValue::Of(Kind::kWord, program_.Word(word));
  return true;
}

// `device(type='cuda', index=0)`: skips to its closing parenthesis.
bool PythonCursor::SkipCall() {
  size_t begin = at_;
  int open = 0;
  do {
    if (Peek() == '\'' || Peek() == '"') {
      if (!TakeString()) return Fail(at_, 1, Diag::kSyntax, "a string has no closing quote");
      continue;
    }
    if (Peek() == '(') ++open;
    if (Peek() == ')') --open;
    ++at_;
  } while (open > 0 && !AtEnd());
  if (open > 0) return Fail(begin, 1, Diag::kSyntax, "`(` has no `)`");
  return true;
}

bool PythonCursor::Argument(ForeignArg& arg) {
  size_t begin = at_;
  std::string_view name = TakeName();
  SkipBlanks();
  if (!name.empty() && Peek() == '=' && !text_.substr(at_).starts_with("==")) {
    ++at_;
    arg.name = program_.Word(name);
  } else {
    at_ = begin;
  }
  return Value(arg.value);
}

bool PythonCursor::Arguments() {
  while (!Take(')')) {
    ForeignArg arg;
    if (!Argument(arg)) return false;
    program_.args.push_back(arg);
    if (Take(',')) continue;
    return Expect(')', "or `,` after an argument");
  }
  return true;
}

bool PythonCursor::Sum(const Symbols& symbols, int depth, int64_t& sum) {
  if (!Product(symbols, depth, sum)) return false;
  while (true) {
    bool minus = false;
    size_t begin = at_;
    if (Take('-')) {
      minus = true;
    } else if (!Take('+')) {
      return true;
    }
    int64_t term = 0;
    if (!Product(symbols, depth, term)) return false;
    bool over =
        minus ? __builtin_sub_overflow(sum, term, &sum) : __builtin_add_overflow(sum, term, &sum);
    if (over) return Fail(begin, 1, Diag::kSizeOverflow, "a size exceeds 64 bits");
  }
}

bool PythonCursor::Product(const Symbols& symbols, int depth, int64_t& product) {
  if (!Factor(symbols, depth, product)) return false;
  while (true) {
    SkipSpace();
    size_t begin = at_;
    bool divides = text_.substr(at_).starts_with("//");
    if (!divides && Peek() != '*') return true;
    at_ += divides ? 2 : 1;
    int64_t factor = 0;
    if (!Factor(symbols, depth, factor)) return false;
    if (divides && factor <= 0)
      return Fail(begin, 2, Diag::kBadSize, "a size is divided by {}", factor);
    if (divides) {
      product = product / factor - (product % factor < 0 ? 1 : 0);
    } else if (__builtin_mul_overflow(product, factor, &product)) {
      return Fail(begin, 1, Diag::kSizeOverflow, "a size exceeds 64 bits");
    }
  }
}

bool PythonCursor::Factor(const Symbols& symbols, int depth, int64_t& factor) {
  SkipSpace();
  size_t begin = at_;
  if (depth > kDeepestList)
    return Fail(at_, 1, Diag::kSyntax, "parentheses are nested more than {} levels deep",
                kDeepestList);
  if (Take('(')) return Sum(symbols, depth + 1, factor) && Expect(')', "after a size");
  std::string_view name = TakeName();
  if (!name.empty()) {
    auto symbol = symbols.find(name);
    if (symbol == symbols.end())
      return Fail(begin, name.size(), Diag::kUnknownSymbol, "the size `{}` is not defined", name);
    factor = symbol->second;
    return true;
  }
  ForeignValue number;
  if (!Number(number)) return false;
  if (number.kind != Kind::kInt)
    return Fail(begin, 1, Diag::kBadSize, "a size is not a whole number");
  factor = number.integer;
  return true;
}

}  // namespace heddle
