// Patterns of a tokenizer: regular expressions and literal texts.
//
// tokenizer.json has regular expressions in the syntax of Oniguruma. They are translated for PCRE2,
// and expressions that the two read differently are refused.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle::run {

// A part of a text: a match, or the text between two matches.
struct Span {
  size_t begin = 0;
  size_t end = 0;
  bool match = false;
};

// How a text is divided at its matches.
enum class SplitBehavior : uint8_t {
  kRemoved,
  kIsolated,
  kMergedWithPrevious,
  kMergedWithNext,
  kContiguous,
};

// Memory of matching. Each thread needs its own.
class MatchMemory {
 public:
  MatchMemory();
  ~MatchMemory();
  MatchMemory(const MatchMemory&) = delete;
  MatchMemory& operator=(const MatchMemory&) = delete;

 private:
  friend class Pattern;
  struct State;
  std::unique_ptr<State> state_;
};

class Pattern {
 public:
  static Pattern Literal(std::string text);
  // Messages of errors have no position.
  static Result<Pattern> Regex(std::string_view expression);

  // Replaces `spans` by the matches in `text` and the parts between them, in order. Fails if the
  // regular expression backtracks too much.
  Status Find(std::string_view text, MatchMemory& memory, std::vector<Span>& spans) const;

 private:
  Status FindRegex(std::string_view text, MatchMemory& memory, std::vector<Span>& spans) const;

  std::string source_;
  // Null for a literal.
  std::shared_ptr<const void> code_;
  bool has_jit_ = false;
};

// Joins or drops spans as `behavior` demands. The flags of the result are of no use.
void Divide(SplitBehavior behavior, std::vector<Span>& spans);

// A regular expression of Oniguruma in the syntax of PCRE2. Fails if PCRE2 would read a part of it
// differently.
Result<std::string> TranslateRegex(std::string_view expression);

}  // namespace heddle::run
