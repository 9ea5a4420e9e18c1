// Tokens of a text, and the random numbers that select among them.
#pragma once

#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace heddle {

// Returns the same numbers for a seed on every machine.
class AttackDice {
 public:
  explicit AttackDice(uint64_t seed) : random_(seed) {}
  // Returns a number below `n`, which must not be 0.
  size_t Below(size_t n) { return static_cast<size_t>(random_() % n); }
  bool OneIn(size_t n) { return Below(n) == 0; }
  template <typename List>
  const auto& Pick(const List& list) {
    return std::data(list)[Below(std::size(list))];
  }

 private:
  std::mt19937_64 random_;
};

struct Token {
  enum class Kind : uint8_t { kWord, kValue, kScope, kNumber, kString, kMark };
  Kind kind;
  // White space and comments before the token.
  std::string space;
  std::string text;
};
using Tokens = std::vector<Token>;

// Splits a text. The last token is an empty mark with the white space at the end.
Tokens Tokenize(std::string_view text);
std::string Print(const Tokens& tokens);

// Whether a line begins with this token.
bool BeginsLine(const Token& token);

}  // namespace heddle
