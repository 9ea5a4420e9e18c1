// A pipeline as its text says, changed by what flags say.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/manager/pipeline.h"
#include "heddle/core/base/result.h"

namespace heddle::compile {

// Sets an option of all these passes.
struct OptionSetting {
  // For messages.
  std::string flag;
  std::vector<std::string> passes;
  std::string option;
  std::string value;
};

// Runs a pass before another, or at the end where the pipeline has no such pass.
struct PassAddition {
  // For messages.
  std::string flag;
  std::string pass;
  std::string before;
};

struct PipelineChanges {
  std::vector<PassAddition> added;
  std::vector<OptionSetting> settings;
  // Passes that do not run.
  std::vector<std::string> disabled;
};

// Answers with notes about changes that have no effect.
Result<std::vector<std::string>> AdjustPipeline(const PipelineChanges& changes,
                                                const PassTable& passes, Pipeline& pipeline);

}  // namespace heddle::compile
