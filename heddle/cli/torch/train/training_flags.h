// The flags of `heddle train`.
#pragma once

#include "heddle/api/training_job.h"
#include "heddle/cli/step/compile_flags.h"
#include "heddle/cli/torch/job_flags.h"
#include "heddle/cli/torch/train/processes.h"

namespace heddle {

struct TrainingFlags {
  // Complete after Options(), which adds the compile settings and the job file.
  TrainOptions options;
  CompileFlags compile;
  ProcessFlags process;
  // All flags as a file, which is written next to checkpoints.
  std::string text;
  // All flags, one per line, for comparison with those of other ranks.
  std::string values;

  void Declare(Flags& flags);
  TrainOptions Options() const;
};

}  // namespace heddle
