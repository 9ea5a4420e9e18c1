// Regular expressions of Oniguruma, in the syntax of PCRE2.
#include <cctype>

#include "heddle/core/base/text.h"
#include "heddle/run/tokenizer/pattern.h"

namespace heddle::run {
namespace {

class RegexTranslator {
 public:
  explicit RegexTranslator(std::string_view in) : in_(in) {}

  Result<std::string> Run() {
    while (at_ < in_.size()) {
      char c = in_[at_];
      if (c == '\\') {
        HEDDLE_RETURN_IF_ERROR(Escape(/*in_set=*/false));
      } else if (c == '[') {
        HEDDLE_RETURN_IF_ERROR(Set());
      } else if (c == '(') {
        HEDDLE_RETURN_IF_ERROR(Group());
      } else if (c == '{') {
        HEDDLE_RETURN_IF_ERROR(Repeat());
      } else {
        out_ += c;
        ++at_;
      }
    }
    return std::move(out_);
  }

 private:
  Failure Refuse(std::string_view part) const {
    return Error(Diag::kTokenizer,
                 "the regular expression has `{}` at character {}, which is not "
                 "supported",
                 part, at_ + 1);
  }
  std::string_view Rest() const { return in_.substr(at_); }
  void Copy(size_t size) {
    out_ += Rest().substr(0, size);
    at_ += size;
  }

  Status Escape(bool in_set) {
    std::string_view rest = Rest();
    if (rest.size() < 2) return Refuse("\\");
    char c = rest[1];
    if (std::string_view meaning = Meaning(c, in_set); !meaning.empty()) {
      out_ += meaning;
      at_ += 2;
      return Done{};
    }
    if (c == 'p' || c == 'P') return Property();
    if (c == 'x' || c == 'u') return Number(c);
    bool letter = std::isalnum(static_cast<unsigned char>(c)) != 0;
    bool anchor = !in_set && (c == 'A' || c == 'z' || c == 'Z');
    if (letter && !anchor && std::string_view("dDrntfae").find(c) == std::string_view::npos)
      return Refuse(rest.substr(0, 2));
    // The characters of a multi-byte character follow as they are.
    Copy(2);
    return Done{};
  }

  // Classes that PCRE2 defines differently.
  static std::string_view Meaning(char c, bool in_set) {
    switch (c) {
      // \s of PCRE2 includes U+180E.
      case 's': return "\\p{White_Space}";
      case 'S': return "\\P{White_Space}";
      case 'w':
        return in_set ? "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"
                      : "[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]";
      case 'W': return in_set ? "" : "[^\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}]";
      case 'h': return in_set ? "0-9a-fA-F" : "[0-9a-fA-F]";
      case 'v': return "\\x0b";
      default: return "";
    }
  }

  Status Property() {
    size_t end = in_.find('}', at_);
    if (Rest().size() < 4 || Rest()[2] != '{' || end == std::string_view::npos)
      return Refuse(Rest().substr(0, 2));
    Copy(end + 1 - at_);
    return Done{};
  }

  // `\x41`, `\x{4E00}` and `\u4E00`.
  Status Number(char kind) {
    std::string_view digits = Rest().substr(2);
    bool braces = kind == 'x' && digits.starts_with('{');
    size_t count = 0;
    if (braces) digits.remove_prefix(1);
    size_t most = braces ? 8 : kind == 'x' ? 2 : 4;
    while (count < digits.size() && count < most &&
           std::isxdigit(static_cast<unsigned char>(digits[count])) != 0)
      ++count;
    std::string_view number = digits.substr(0, count);
    bool closed = !braces || digits.substr(count).starts_with('}');
    // `\xE4` is a byte in one syntax and a character in the other.
    bool byte = !braces && kind == 'x' && count == 2 && number[0] >= '8';
    if (count == 0 || !closed || byte || (!braces && count < most))
      return Refuse(Rest().substr(0, 2));
    out_ += fmt::format("\\x{{{}}}", number);
    at_ += 2 + count + (braces ? 2 : 0);
    return Done{};
  }

  Status Set() {
    Copy(Rest().starts_with("[^") ? 2 : 1);
    if (Rest().starts_with(']')) return Refuse("[]");
    while (at_ < in_.size() && in_[at_] != ']') {
      if (in_[at_] == '\\') {
        HEDDLE_RETURN_IF_ERROR(Escape(/*in_set=*/true));
        continue;
      }
      // Sets within sets, and intersections.
      if (in_[at_] == '[') return Refuse("[[");
      if (Rest().starts_with("&&")) return Refuse("&&");
      Copy(1);
    }
    if (at_ == in_.size()) return Refuse("[");
    Copy(1);
    return Done{};
  }

  Status Group() {
    std::string_view rest = Rest();
    if (rest.starts_with("(*")) return Refuse("(*");
    if (!rest.starts_with("(?")) {
      Copy(1);
      return Done{};
    }
    for (std::string_view kind : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:"}) {
      if (!rest.starts_with(kind)) continue;
      Copy(kind.size());
      return Done{};
    }
    // Elsewhere, its extent differs.
    if (at_ == 0 && rest.starts_with("(?i)")) {
      Copy(4);
      return Done{};
    }
    return Refuse(rest.substr(0, 3));
  }

  Status Repeat() {
    size_t end = in_.find('}', at_);
    std::string_view inside =
        end == std::string_view::npos ? "" : in_.substr(at_ + 1, end - at_ - 1);
    bool digits = !inside.empty() && inside[0] != ',';
    size_t commas = 0;
    for (char c : inside) {
      if (c == ',') ++commas;
      digits = digits && (c == ',' || std::isdigit(static_cast<unsigned char>(c)) != 0);
    }
    if (!digits || commas > 1) return Refuse("{");
    // Repeats a repetition in Oniguruma; possessive or lazy in PCRE2.
    char next = end + 1 < in_.size() ? in_[end + 1] : '\0';
    if (next == '+' || (next == '?' && commas == 0)) return Refuse(fmt::format("}}{}", next));
    Copy(end + 1 - at_);
    return Done{};
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
};

}  // namespace

Result<std::string> TranslateRegex(std::string_view expression) {
  return RegexTranslator(expression).Run();
}

}  // namespace heddle::run
