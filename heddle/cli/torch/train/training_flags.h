// The flags of `heddle train`.
#pragma once

#include "heddle/api/training_job.h"
#include "heddle/cli/compile_flags.h"
#include "heddle/cli/torch/model_flags.h"
#include "heddle/cli/torch/parallel_flags.h"
#include "heddle/cli/torch/train/job_flags.h"
#include "heddle/cli/torch/train/processes.h"
#include "heddle/cli/torch/train/train_flags.h"

namespace heddle {

struct TrainingFlags {
  ModelFlags model;
  ParallelFlags parallel;
  CompileFlags compile{"fsdp"};
  TrainFlags train;
  JobFlags job;
  ProcessFlags process;
  // All of them as a file, which is written next to checkpoints.
  std::string text;
  // All of them, a line each, for comparing them with those of other ranks.
  std::string values;

  void Declare(Flags& flags);
  // These flags must outlive the options.
  TrainOptions Options() const;
};

}  // namespace heddle
