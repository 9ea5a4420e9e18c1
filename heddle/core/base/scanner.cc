#include "heddle/core/base/scanner.h"

#include <charconv>

namespace heddle {
namespace {

int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

bool Scanner::TakeWord(std::string_view word) {
  SkipSpace();
  if (text_.substr(at_, word.size()) != word) return false;
  size_t end = at_ + word.size();
  if (end < text_.size() &&
      (kCharClasses[static_cast<unsigned char>(text_[end])] & CharClass::kWord) != 0) {
    return false;
  }
  at_ = end;
  return true;
}

bool Scanner::TakeSymbol(std::string_view symbol) {
  SkipSpace();
  if (text_.substr(at_, symbol.size()) != symbol) return false;
  at_ += symbol.size();
  return true;
}

std::optional<int64_t> Scanner::TakeInt() {
  SkipSpace();
  int64_t value = 0;
  const char* begin = text_.data() + at_;
  auto [end, error] = std::from_chars(begin, text_.data() + text_.size(), value);
  if (error != std::errc()) return std::nullopt;
  at_ += static_cast<size_t>(end - begin);
  return value;
}

std::optional<std::string> Scanner::TakeQuoted() {
  SkipSpace();
  size_t begin = at_;
  if (!Take('"')) return std::nullopt;
  std::string out;
  while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') {
    char c = text_[at_++];
    if (c != '\\') {
      out += c;
      continue;
    }
    char escape = PeekRaw();
    if (escape == 'n') {
      out += '\n';
      ++at_;
    } else if (escape == '"' || escape == '\\') {
      out += escape;
      ++at_;
    } else if (escape == 'x' && at_ + 2 < text_.size() && HexDigit(text_[at_ + 1]) >= 0 &&
               HexDigit(text_[at_ + 2]) >= 0) {
      out += static_cast<char>(HexDigit(text_[at_ + 1]) * 16 + HexDigit(text_[at_ + 2]));
      at_ += 3;
    } else {
      break;
    }
  }
  if (PeekRaw() != '"') {
    at_ = begin;
    return std::nullopt;
  }
  ++at_;
  return out;
}

}  // namespace heddle
