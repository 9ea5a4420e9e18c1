// Trainer: the loop of a training run. It runs steps, checks the loss, validates, saves, and stops
// on request.
//
// Callbacks print, write files and communicate with other ranks.
#pragma once

#include <functional>
#include <optional>

#include "heddle/run/train/graph_run.h"

namespace heddle::run {

// How to handle a step whose loss is not finite or spikes. kSkip undoes the step and continues with
// the next batch.
enum class BadLossPolicy : uint8_t { kIgnore, kStop, kSkip };

struct TrainedStep {
  int64_t step = 0;
  double loss = 0;
  // Unset without clipping.
  std::optional<double> grad_norm;
  double lr = 0;
  // Until the loss was known: from the start of the step, or from when the loss of the previous
  // step was known if the step started earlier.
  double seconds = 0;
  double data_seconds = 0;
  std::optional<double> validation_loss;
  // Whether the step was undone because of its loss.
  bool skipped = false;
};

struct TrainerOptions {
  int64_t steps = 1;
  std::function<double(int64_t step)> lr;
  BadLossPolicy not_finite = BadLossPolicy::kStop;
  // A spike is a loss of more than `spike_factor` times the mean of the last ones.
  BadLossPolicy spike = BadLossPolicy::kIgnore;
  double spike_factor = 3;
  // Validates every N steps, on this number of batches; 0: never.
  int64_t validation_interval = 0;
  int64_t validation_steps = 0;
  BatchSource validation_batches;
  // Saves every N steps and after the last; 0: only after the last. An empty `save` saves nothing.
  int64_t save_interval = 0;
  std::function<Status(const GraphRun&)> save;
  // Called after every step: whether to stop now. All ranks must get the same answer.
  std::function<Result<bool>(int64_t step)> stop;
  // Whether the next step may start before the loss of `step` is known, so that the device does not
  // wait for the host. The run is then one step ahead of `on_step`. Empty: never.
  std::function<bool(int64_t step)> runs_ahead;
  // Called before validation, after every step whose successor has not started: its gradients still
  // exist.
  std::function<Status(const GraphRun&)> on_trained;
  // Called for every step.
  std::function<Status(const GraphRun&, const TrainedStep&)> on_step;
};

enum class TrainingEnd : uint8_t { kFinished, kStopped, kNotFinite, kSpike };

struct TrainingOutcome {
  TrainingEnd end = TrainingEnd::kFinished;
  // The last trained step.
  TrainedStep last;
};

// Trains from the run's step to the last.
Result<TrainingOutcome> Train(GraphRun& run, const TrainerOptions& options);

}  // namespace heddle::run
