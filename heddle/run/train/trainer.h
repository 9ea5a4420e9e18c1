// Trainer: the loop of a training run. Steps, looks at the loss, validates, saves, and ends where it is told to.
//
// What is printed, where files go and who else takes part is the caller's affair.
#pragma once

#include <functional>
#include <optional>

#include "heddle/run/train/session.h"

namespace heddle::run {

// What becomes of a step whose loss is odd. `kSkip` takes the step back and goes on with the next batch.
enum class OddLoss : uint8_t { kIgnore, kStop, kSkip };

struct TrainedStep {
  int64_t step = 0;
  double loss = 0;
  // None where nothing is clipped.
  std::optional<double> grad_norm;
  double lr = 0;
  // Until its loss was known: from its start, or from when the loss of the step before was known if
  // it started earlier.
  double seconds = 0;
  double data_seconds = 0;
  std::optional<double> validation_loss;
  // Its loss was odd, and it was taken back.
  bool skipped = false;
};

struct TrainerOptions {
  int64_t steps = 1;
  std::function<double(int64_t step)> lr;
  OddLoss not_finite = OddLoss::kStop;
  // A loss of more than `spike_factor` times the mean of the last ones.
  OddLoss spike = OddLoss::kIgnore;
  double spike_factor = 3;
  // Every so many steps, on so many batches; 0: never.
  int64_t validation_interval = 0;
  int64_t validation_steps = 0;
  BatchSource validation_batches;
  // Every so many steps, and behind the last; 0: behind the last alone. Empty: nothing is saved.
  int64_t save_interval = 0;
  std::function<Status(const Session&)> save;
  // Asked behind every step: whether the run is to end now. All ranks get the same answer.
  std::function<Result<bool>(int64_t step)> stop;
  // Whether the next step may start before the loss of `step` is known, so that the device does not
  // wait for the host. The session then is a step ahead of `on_step`. Empty: it never may.
  std::function<bool(int64_t step)> runs_ahead;
  // Called before validation after every step that no other has followed yet: its gradients still
  // exist.
  std::function<Status(const Session&)> on_trained;
  // Told of every step.
  std::function<Status(const Session&, const TrainedStep&)> on_step;
};

enum class TrainingEnd : uint8_t { kFinished, kStopped, kNotFinite, kSpike };

struct TrainingOutcome {
  TrainingEnd end = TrainingEnd::kFinished;
  // The last one that was trained.
  TrainedStep last;
};

// From where the session stands to the last step.
Result<TrainingOutcome> Train(Session& session, const TrainerOptions& options);

}  // namespace heddle::run
