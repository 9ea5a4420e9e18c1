// Applies flags to a pipeline.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/manager/pipeline.h"
#include "heddle/core/base/result.h"

namespace heddle::compile {

// Sets an option of all these passes.
struct OptionSetting {
  // The flag, for messages.
  std::string flag;
  std::vector<std::string> passes;
  std::string option;
  std::string value;
};

// Runs a pass before another one, or at the end if the pipeline lacks that pass.
struct PassAddition {
  // The flag, for messages.
  std::string flag;
  std::string pass;
  std::string before;
};

struct PipelineChanges {
  std::vector<PassAddition> added;
  std::vector<OptionSetting> settings;
  // Passes to remove.
  std::vector<std::string> disabled;
};

// Returns notes about changes that have no effect.
Result<std::vector<std::string>> AdjustPipeline(const PipelineChanges& changes,
                                                const PassTable& passes, Pipeline& pipeline);

}  // namespace heddle::compile
