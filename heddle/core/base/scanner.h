// Scanner: a cursor over a text that skips white space and `//` comments between tokens. It never
// allocates and never reads past the end. A Take function that does not match leaves the position
// unchanged; the caller reports the error.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace heddle {

// One bit for each class of characters in tokens.
struct CharClass {
  static constexpr uint8_t kSpace = 1, kDigit = 2, kWord = 4, kName = 8, kScope = 16, kNumber = 32;
};
constexpr std::array<uint8_t, 256> MakeCharClasses() {
  std::array<uint8_t, 256> classes{};
  auto add = [&](std::string_view chars, uint8_t char_class) {
    for (char c : chars) classes[static_cast<unsigned char>(c)] |= char_class;
  };
  add(" \t\r\n", CharClass::kSpace);
  add("0123456789", CharClass::kDigit | CharClass::kWord | CharClass::kName | CharClass::kScope |
                        CharClass::kNumber);
  add("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_",
      CharClass::kWord | CharClass::kName | CharClass::kScope);
  add(".", CharClass::kName | CharClass::kScope);
  add("!", CharClass::kName);
  add("-", CharClass::kScope);
  add("+-.eEinfax", CharClass::kNumber);
  return classes;
}
inline constexpr std::array<uint8_t, 256> kCharClasses = MakeCharClasses();

class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  std::string_view text() const { return text_; }
  size_t offset() const { return at_; }
  void set_offset(size_t offset) { at_ = offset; }
  bool AtEnd() {
    SkipSpace();
    return at_ == text_.size();
  }

  void SkipSpace() {
    while (at_ < text_.size()) {
      if (Is(CharClass::kSpace)) {
        ++at_;
      } else if (text_[at_] == '/' && at_ + 1 < text_.size() && text_[at_ + 1] == '/') {
        SkipLine();
      } else {
        return;
      }
    }
  }
  // To the end of this line, before the newline.
  void SkipLine() {
    size_t end = text_.find('\n', at_);
    at_ = end == std::string_view::npos ? text_.size() : end;
  }

  // The next character after white space, or 0 at the end.
  char Peek() {
    SkipSpace();
    return at_ < text_.size() ? text_[at_] : '\0';
  }
  // The next character including white space, or 0 at the end.
  char PeekRaw() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool Take(char c) {
    if (Peek() != c || at_ == text_.size()) return false;
    ++at_;
    return true;
  }
  // Takes `word` if it is next and no word character follows it.
  bool TakeWord(std::string_view word);
  // Takes `symbol`, which has no word characters, if it is next.
  bool TakeSymbol(std::string_view symbol);

  // The longest, possibly empty, run of characters of `char_class`.
  std::string_view TakeRun(uint8_t char_class) {
    SkipSpace();
    return TakeRawRun(char_class);
  }
  std::string_view TakeRawRun(uint8_t char_class) {
    size_t begin = at_;
    while (at_ < text_.size() && Is(char_class)) ++at_;
    return text_.substr(begin, at_ - begin);
  }

  // A whole number with an optional sign. Takes nothing if there is none or it exceeds 64 bits.
  std::optional<int64_t> TakeInt();
  // A string in double quotes, unescaped.
  std::optional<std::string> TakeQuoted();

 private:
  bool Is(uint8_t char_class) const {
    return (kCharClasses[static_cast<unsigned char>(text_[at_])] & char_class) != 0;
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace heddle
