#include "heddle/cli/torch/train/training_flags.h"

#include "heddle/cli/torch/train/run_settings.h"

namespace heddle {

void TrainingFlags::Declare(Flags& flags) {
  // A size for which a laptop trains a step in a second.
  options.model.seq_len = 256;
  DeclareStep(flags, options.model);
  DeclareDeterministic(flags, options.model);
  DeclareParallelism(flags, options.parallel);
  compile.Declare(flags);
  DeclareTraining(flags, options.optimization);
  DeclareLoop(flags, options.loop);
  DeclareOutput(flags, options.loop);
  process.Declare(flags);
  flags.Config(text);
  flags.Values(values);
}

TrainOptions TrainingFlags::Options() const {
  TrainOptions complete = options;
  complete.compile = compile;
  complete.timeout = process.Timeout();
  complete.job_file = text;
  complete.settings = RunSettings(text);
  complete.values = values;
  return complete;
}

}  // namespace heddle
