// Runs the cases of golden files.
#pragma once

#include "test/golden/golden_file.h"

namespace heddle {

struct GoldenOutcome {
  // What the sections of the case should be, in order; `equal` parts are carried over.
  std::vector<GoldenSection> sections;
  // Why the case fails whatever its sections are: a wrong exit code, or a RUN line that cannot be read.
  std::string problem;
  // `equal` parts that this build cannot run.
  int skipped = 0;
};

GoldenOutcome RunGoldenCase(const GoldenFile& file, const GoldenCase& one);

}  // namespace heddle
