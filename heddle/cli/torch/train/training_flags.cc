#include "heddle/cli/torch/train/training_flags.h"

#include "heddle/cli/torch/train/run_settings.h"

namespace heddle {

void TrainingFlags::Declare(Flags& flags) {
  model.deterministic = true;
  model.Declare(flags);
  flags.Switch(
      "--debug.deterministic", model.deterministic,
      "give the same bits in every run; =false allows oneDNN, threads and GPU kernels that "
      "add in any order, which is faster");
  parallel.Declare(flags);
  compile.Declare(flags);
  compile.DeclareBudget(flags);
  train.Declare(flags);
  job.Declare(flags);
  process.Declare(flags);
  flags.Config(text);
  flags.Values(values);
}

TrainOptions TrainingFlags::Options() const {
  return {.model = model,
          .parallel = parallel,
          .compile =
              [this](const compile::Plan& plan) { return compile.Job(plan, /*want_text=*/false); },
          .optimization = train,
          .loop = job,
          .timeout = process.Timeout(),
          .job_file = text,
          .settings = RunSettings(text),
          .values = values};
}

}  // namespace heddle
