// Normalization: transforms a text before it is split into words.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "heddle/run/tokenizer/pattern.h"
#include "heddle/run/tokenizer/unicode.h"

namespace heddle::run {

struct ReplaceStep {
  Pattern pattern;
  std::string content;
};
struct PrependStep {
  std::string content;
};
struct StripStep {
  bool left = false;
  bool right = false;
};
struct LowercaseStep {};
using NormalStep = std::variant<NormalForm, ReplaceStep, PrependStep, StripStep, LowercaseStep>;

struct NormalText {
  std::string text;
  // Whether the text still begins where the original begins.
  bool at_start = true;
  // For the steps.
  std::string next;
  std::vector<Span> spans;
};

// Applies the steps to `out.text`. Fails if a regular expression fails, or the text grows beyond
// all bounds.
Status Normalize(const std::vector<NormalStep>& steps, MatchMemory& memory, NormalText& out);

}  // namespace heddle::run
