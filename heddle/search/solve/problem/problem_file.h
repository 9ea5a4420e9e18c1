// Problems as files: JSON, plain or compressed by gzip. docs/solve.md describes the format.
#pragma once

#include <string>
#include <string_view>

#include "heddle/search/solve/problem/problem.h"

namespace heddle::search {

struct ProblemFile {
  std::string name;
  // The unit of costs; may be empty.
  std::string unit;
  PairwiseProblem problem;
};

// Maximum size of the text, uncompressed.
inline constexpr size_t kMostProblemText = size_t{64} << 20;

// Fails if the text is not JSON, is incomplete, or the problem has errors. `file` is the name in
// diagnostics.
Result<ProblemFile> ParseProblem(std::string bytes, std::string_view file);

}  // namespace heddle::search
