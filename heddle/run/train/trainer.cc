#include "heddle/run/train/trainer.h"

#include <cmath>
#include <deque>
#include <numeric>
#include <tuple>

#include "heddle/core/base/clock.h"

namespace heddle::run {
namespace {

// Tracks recent losses to detect spikes.
class LossWatch {
 public:
  explicit LossWatch(const TrainerOptions& options) : options_(options) {}

  // Returns how to handle a loss, and the reason.
  std::pair<BadLossPolicy, TrainingEnd> Judge(double loss) {
    if (!std::isfinite(loss)) return {options_.not_finite, TrainingEnd::kNotFinite};
    constexpr size_t kWindow = 20;
    bool known = losses_.size() == kWindow;
    double mean = std::accumulate(losses_.begin(), losses_.end(), 0.0) / kWindow;
    if (known && loss > options_.spike_factor * mean && options_.spike != BadLossPolicy::kIgnore)
      return {options_.spike, TrainingEnd::kSpike};
    losses_.push_back(loss);
    if (losses_.size() > kWindow) losses_.pop_front();
    return {BadLossPolicy::kIgnore, TrainingEnd::kFinished};
  }

 private:
  const TrainerOptions& options_;
  std::deque<double> losses_;
};

Result<double> Validate(GraphRun& run, const TrainerOptions& options) {
  double sum = 0;
  for (int64_t number = 1; number <= options.validation_steps; ++number) {
    HEDDLE_TRY(double loss, run.Evaluate(options.validation_batches, number));
    sum += loss;
  }
  return sum / static_cast<double>(options.validation_steps);
}

bool IsDue(int64_t interval, int64_t step) { return interval > 0 && step % interval == 0; }

bool MayUndo(const TrainerOptions& options) {
  return options.not_finite == BadLossPolicy::kSkip || options.spike == BadLossPolicy::kSkip;
}

// Whether the step after `step` may start before the loss of `step` is known.
bool RunsAhead(const GraphRun& run, const TrainerOptions& options, int64_t step) {
  return step < options.steps && !MayUndo(options) && !IsDue(options.validation_interval, step) &&
         !(options.save && IsDue(options.save_interval, step)) && run.can_run_ahead() &&
         options.runs_ahead && options.runs_ahead(step);
}

}  // namespace

Result<TrainingOutcome> Train(GraphRun& run, const TrainerOptions& options) {
  TrainingOutcome outcome;
  LossWatch watch(options);
  bool may_undo = MayUndo(options);
  int64_t saved = run.steps();
  bool stops = false;
  Clock clock;
  for (int64_t step = saved + 1; step <= options.steps; ++step) {
    TrainedStep row;
    row.step = step;
    row.lr = options.lr(step);
    if (run.steps() < step) {
      clock = Clock();
      if (may_undo) run.Remember();
      HEDDLE_RETURN_IF_ERROR(run.Step(row.lr));
    }
    row.data_seconds = run.data_seconds();
    run.StartReading();
    bool ahead = !stops && RunsAhead(run, options, step);
    if (ahead) HEDDLE_RETURN_IF_ERROR(run.Step(options.lr(step + 1)));
    std::tie(row.loss, row.grad_norm) = run.Read();
    row.seconds = Seconds(clock.Elapsed());
    clock = Clock();
    auto [answer, odd] = watch.Judge(row.loss);
    row.skipped = answer == BadLossPolicy::kSkip;
    if (row.skipped) run.UndoStep();
    if (options.on_trained && !ahead) HEDDLE_RETURN_IF_ERROR(options.on_trained(run));
    if (IsDue(options.validation_interval, step) && answer != BadLossPolicy::kStop) {
      HEDDLE_TRY(row.validation_loss, Validate(run, options));
    }
    if (options.on_step) HEDDLE_RETURN_IF_ERROR(options.on_step(run, row));
    outcome.last = row;
    // The state after such a step must not be saved.
    if (answer == BadLossPolicy::kStop) {
      outcome.end = odd;
      return outcome;
    }
    if (options.save && IsDue(options.save_interval, step)) {
      HEDDLE_RETURN_IF_ERROR(options.save(run));
      saved = step;
    }
    if (!options.stop) continue;
    HEDDLE_TRY(bool asked, options.stop(step));
    stops = stops || asked;
    // A step that has started must end first.
    if (!stops || ahead) continue;
    outcome.end = TrainingEnd::kStopped;
    break;
  }
  if (options.save && saved != run.steps()) HEDDLE_RETURN_IF_ERROR(options.save(run));
  return outcome;
}

}  // namespace heddle::run
