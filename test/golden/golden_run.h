// Runs the cases of golden files.
#pragma once

#include "test/golden/golden_file.h"

namespace heddle {

struct GoldenOutcome {
  // The actual sections of the case, in order; `equal` parts are copied.
  std::vector<GoldenSection> sections;
  // An error other than a different section: a wrong exit code, or an invalid RUN line.
  std::string problem;
  // Number of `equal` parts that this build cannot run.
  int skipped = 0;
};

GoldenOutcome RunGoldenCase(const GoldenFile& file, const GoldenCase& one);

}  // namespace heddle
