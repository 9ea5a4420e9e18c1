// Problems as files: JSON, plain or compressed by gzip. docs/solve.md describes the format.
#pragma once

#include <string>
#include <string_view>

#include "heddle/search/solve/problem/problem.h"

namespace heddle::search {

struct ProblemFile {
  std::string name;
  // What costs are counted in; may be empty.
  std::string unit;
  PairwiseProblem problem;
};

// The most text that is read, uncompressed.
inline constexpr size_t kMostProblemText = size_t{64} << 20;

// Fails if the text is not JSON, lacks something, or the problem has mistakes. `file` is the name in diagnostics.
Result<ProblemFile> ParseProblem(std::string bytes, std::string_view file);

}  // namespace heddle::search
