#include "heddle/import/read/python_cursor.h"

#include <algorithm>
#include <charconv>

#include "heddle/base/scanner.h"

namespace heddle {
namespace {

// Deeper than any printed graph, and far from the end of the stack.
constexpr int kDeepest = 64;

bool IsWordChar(char c) {
  return (kCharClasses[static_cast<unsigned char>(c)] & CharClass::kWord) != 0;
}
bool IsDigit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

void PythonCursor::SkipBlanks() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r'))
    ++at_;
}

void PythonCursor::SkipSpace() {
  while (at_ < text_.size()) {
    char c = text_[at_];
    if (c == ' ' || c == '\n' || c == '\t' || c == '\r' || c == '\\') {
      ++at_;
    } else if (c == '#') {
      SkipLine();
    } else {
      return;
    }
  }
}

void PythonCursor::SkipLine() {
  size_t end = text_.find('\n', at_);
  at_ = end == std::string_view::npos ? text_.size() : end + 1;
}

bool PythonCursor::Take(char c) {
  SkipSpace();
  if (Peek() != c || at_ == text_.size()) return false;
  ++at_;
  return true;
}

bool PythonCursor::TakeWord(std::string_view word) {
  SkipSpace();
  if (!text_.substr(at_).starts_with(word)) return false;
  size_t end = at_ + word.size();
  if (end < text_.size() && IsWordChar(text_[end])) return false;
  at_ = end;
  return true;
}

std::string_view PythonCursor::TakeName() {
  size_t begin = at_;
  if (at_ < text_.size() && IsDigit(text_[at_])) return {};
  while (at_ < text_.size() && IsWordChar(text_[at_])) ++at_;
  return text_.substr(begin, at_ - begin);
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

Status PythonCursor::Expect(char c, std::string_view where) {
  if (Take(c)) return Done{};
  return Fail(at_, 1, Diag::kSyntax, "expected `{}` {}", c, where);
}

Result<ForeignValue> PythonCursor::Number() {
  size_t begin = at_;
  size_t end = at_;
  if (end < text_.size() && (text_[end] == '-' || text_[end] == '+')) ++end;
  while (end < text_.size() && (IsWordChar(text_[end]) || text_[end] == '.' ||
                                ((text_[end] == '-' || text_[end] == '+') &&
                                 (text_[end - 1] == 'e' || text_[end - 1] == 'E'))))
    ++end;
  std::string_view word = text_.substr(begin, end - begin);
  at_ = end;
  ForeignValue value;
  const char* last = word.data() + word.size();
  const char* first = word.data() + (word.starts_with('+') ? 1 : 0);
  auto whole = std::from_chars(first, last, value.integer);
  if (whole.ec == std::errc() && whole.ptr == last) {
    value.kind = ForeignValue::Kind::kInt;
    return value;
  }
  auto real = std::from_chars(first, last, value.number);
  if (real.ec != std::errc() || real.ptr != last)
    return Fail(begin, std::max<size_t>(1, word.size()), Diag::kBadLiteral, "`{}` is not a number",
                word);
  value.kind = ForeignValue::Kind::kFloat;
  return value;
}

// Items are collected first: those of lists inside of this one go before them.
Result<ForeignValue> PythonCursor::List(char close, int depth) {
  std::vector<ForeignValue> items;
  while (!Take(close)) {
    HEDDLE_TRY(ForeignValue item, Value(depth + 1));
    items.push_back(item);
    if (Take(',')) continue;
    HEDDLE_RETURN_IF_ERROR(Expect(close, "or `,` in a list"));
    break;
  }
  ForeignValue list{.kind = ForeignValue::Kind::kList};
  list.first = static_cast<uint32_t>(program_.values.size());
  list.count = static_cast<uint32_t>(items.size());
  program_.values.insert(program_.values.end(), items.begin(), items.end());
  return list;
}

Result<ForeignValue> PythonCursor::Dict(int depth) {
  std::vector<ForeignValue> items;
  while (!Take('}')) {
    HEDDLE_TRY(ForeignValue key, Value(depth + 1));
    HEDDLE_RETURN_IF_ERROR(Expect(':', "after a key"));
    HEDDLE_TRY(ForeignValue value, Value(depth + 1));
    items.push_back(key);
    items.push_back(value);
    if (Take(',')) continue;
    HEDDLE_RETURN_IF_ERROR(Expect('}', "or `,` in a dictionary"));
    break;
  }
  ForeignValue dict{.kind = ForeignValue::Kind::kDict};
  dict.first = static_cast<uint32_t>(program_.values.size());
  dict.count = static_cast<uint32_t>(items.size());
  program_.values.insert(program_.values.end(), items.begin(), items.end());
  return dict;
}

Result<ForeignValue> PythonCursor::Value(int depth) {
  SkipSpace();
  if (depth > kDeepest)
    return Fail(at_, 1, Diag::kSyntax, "lists are nested more than {} deep", kDeepest);
  char c = Peek();
  if (c == '[' || c == '(') {
    ++at_;
    return List(c == '[' ? ']' : ')', depth);
  }
  if (c == '{') {
    ++at_;
    return Dict(depth);
  }
  ForeignValue value;
  if (std::optional<std::string_view> string = TakeString()) {
    value.kind = ForeignValue::Kind::kString;
    value.text = *string;
    return value;
  }
  size_t begin = at_;
  bool negative = c == '-' && text_.substr(at_).starts_with("-inf");
  if (negative) ++at_;
  std::string_view word = TakeDotted();
  if (word.empty()) {
    at_ = begin;
    if (IsDigit(c) || c == '-' || c == '+' || c == '.') return Number();
    return Fail(at_, 1, Diag::kSyntax, "expected a value");
  }
  if (word == "None") return value;
  if (word == "True" || word == "False") {
    value.kind = ForeignValue::Kind::kBool;
    value.boolean = word == "True";
    return value;
  }
  if (word == "inf" || word == "nan" || word == "math.inf" || word == "torch.inf") {
    value.kind = ForeignValue::Kind::kFloat;
    value.number = word == "nan" ? std::numeric_limits<double>::quiet_NaN()
                                 : std::numeric_limits<double>::infinity();
    if (negative) value.number = -value.number;
    return value;
  }
  bool dotted = word.find('.') != std::string_view::npos;
  value.kind = dotted ? ForeignValue::Kind::kWord : ForeignValue::Kind::kName;
  value.text = word;
  if (Peek() == '(') {
    HEDDLE_RETURN_IF_ERROR(SkipCall());
    value.kind = ForeignValue::Kind::kWord;
    value.text = text_.substr(begin, at_ - begin);
  }
  return value;
}

// `device(type='cuda', index=0)`: the text up to the parenthesis that closes it.
Status PythonCursor::SkipCall() {
  size_t begin = at_;
  int open = 0;
  do {
    if (Peek() == '\'' || Peek() == '"') {
      if (!TakeString()) return Fail(at_, 1, Diag::kSyntax, "a string that does not end");
      continue;
    }
    if (Peek() == '(') ++open;
    if (Peek() == ')') --open;
    ++at_;
  } while (open > 0 && !AtEnd());
  if (open > 0) return Fail(begin, 1, Diag::kSyntax, "`(` has no `)`");
  return Done{};
}

Status PythonCursor::Arguments(std::vector<ForeignArg>& args) {
  while (!Take(')')) {
    SkipSpace();
    size_t begin = at_;
    std::string_view name = TakeName();
    SkipBlanks();
    bool named = !name.empty() && Peek() == '=' && !text_.substr(at_).starts_with("==");
    if (named) {
      ++at_;
    } else {
      at_ = begin;
      name = {};
    }
    HEDDLE_TRY(ForeignValue value, Value());
    args.push_back({name, value});
    if (Take(',')) continue;
    HEDDLE_RETURN_IF_ERROR(Expect(')', "or `,` after an argument"));
    break;
  }
  return Done{};
}

Result<int64_t> PythonCursor::Sum(const Symbols& symbols, int depth) {
  HEDDLE_TRY(int64_t sum, Product(symbols, depth));
  while (true) {
    bool minus = false;
    size_t begin = at_;
    if (Take('-')) {
      minus = true;
    } else if (!Take('+')) {
      return sum;
    }
    HEDDLE_TRY(int64_t term, Product(symbols, depth));
    bool over =
        minus ? __builtin_sub_overflow(sum, term, &sum) : __builtin_add_overflow(sum, term, &sum);
    if (over) return Fail(begin, 1, Diag::kSizeOverflow, "a size exceeds 64 bits");
  }
}

Result<int64_t> PythonCursor::Product(const Symbols& symbols, int depth) {
  HEDDLE_TRY(int64_t product, Factor(symbols, depth));
  while (true) {
    SkipSpace();
    size_t begin = at_;
    bool divides = text_.substr(at_).starts_with("//");
    if (!divides && Peek() != '*') return product;
    at_ += divides ? 2 : 1;
    HEDDLE_TRY(int64_t factor, Factor(symbols, depth));
    if (divides && factor <= 0)
      return Fail(begin, 2, Diag::kBadSize, "a size is divided by {}", factor);
    if (divides) {
      product = product / factor - (product % factor < 0 ? 1 : 0);
    } else if (__builtin_mul_overflow(product, factor, &product)) {
      return Fail(begin, 1, Diag::kSizeOverflow, "a size exceeds 64 bits");
    }
  }
}

Result<int64_t> PythonCursor::Factor(const Symbols& symbols, int depth) {
  SkipSpace();
  size_t begin = at_;
  if (depth > kDeepest)
    return Fail(at_, 1, Diag::kSyntax, "parentheses are nested more than {} deep", kDeepest);
  if (Take('(')) {
    HEDDLE_TRY(int64_t inside, Sum(symbols, depth + 1));
    HEDDLE_RETURN_IF_ERROR(Expect(')', "after a size"));
    return inside;
  }
  std::string_view name = TakeName();
  if (!name.empty()) {
    auto symbol = symbols.find(name);
    if (symbol != symbols.end()) return symbol->second;
    return Fail(begin, name.size(), Diag::kUnknownSymbol, "the size `{}` is given nowhere", name);
  }
  HEDDLE_TRY(ForeignValue number, Number());
  if (number.kind == ForeignValue::Kind::kInt) return number.integer;
  return Fail(begin, 1, Diag::kBadSize, "a size is not a whole number");
}

}  // namespace heddle
