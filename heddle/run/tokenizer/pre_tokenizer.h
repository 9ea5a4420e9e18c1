// Pre-tokenization: divides a text into words, which are encoded one by one.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "heddle/run/tokenizer/bpe.h"
#include "heddle/run/tokenizer/pattern.h"

namespace heddle::run {

struct SplitStep {
  Pattern pattern;
  SplitBehavior behavior = SplitBehavior::kIsolated;
  // Swaps matches and the parts between them.
  bool invert = false;
};
// Writes spaces as another character, and divides before it.
struct MetaspaceStep {
  enum class Prepend : uint8_t { kNever, kFirst, kAlways };
  std::string replacement;
  Prepend prepend = Prepend::kAlways;
  bool split = true;
};
// Byte-level words begin with a space.
struct PrefixSpaceStep {};
using WordStep = std::variant<SplitStep, MetaspaceStep, PrefixSpaceStep>;

// Runs the steps, and the model on the words, for one thread.
class WordEncoder {
 public:
  WordEncoder(const std::vector<WordStep>& steps, const BpeModel& model)
      : steps_(steps), model_(model), scratch_(steps.size()) {}

  // Appends the tokens of a text. `at_start`: the whole text begins here.
  Status Encode(std::string_view text, bool at_start, MatchMemory& memory,
                std::vector<int32_t>& out) {
    return Run(0, text, at_start, memory, out);
  }

 private:
  // Memory of one step. Texts are divided depth-first, so each step is in use once.
  struct Scratch {
    std::vector<Span> spans;
    std::string text;
  };
  Status Run(size_t step, std::string_view text, bool at_start, MatchMemory& memory,
             std::vector<int32_t>& out);
  Status RunSpans(size_t step, std::string_view text, bool at_start, MatchMemory& memory,
                  std::vector<int32_t>& out);

  const std::vector<WordStep>& steps_;
  BpeEncoder model_;
  std::vector<Scratch> scratch_;
};

}  // namespace heddle::run
