// The run that `heddle train --metrics.wandb` records for Weights & Biases.
#pragma once

#include <string>

#include "heddle/core/base/result.h"
#include "heddle/run/metrics/wandb.h"

namespace heddle {

// `job` is the job's TOML: it becomes the configuration of the run, and determines its id. WANDB_*
// variables of the environment have precedence.
Result<run::WandbOptions> WandbOptionsOf(const std::string& folder, const std::string& job);

}  // namespace heddle
