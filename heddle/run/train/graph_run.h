// GraphRun: a training run of compiled graphs: one session, or one per coordinate of a pipeline.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "heddle/run/models/model.h"
#include "heddle/run/runtime/rank_program.h"
#include "heddle/run/train/bound_step.h"
#include "heddle/run/train/training_run.h"

namespace heddle::run {

class Session;

class GraphRun : public TrainingRun {
 public:
  // Makes an observer for a run of a graph (RankProgram::Run). The coordinates of a pipeline call
  // it, and their observers, on their own threads.
  using Watcher = std::function<RankProgram::Observer(const RankProgram& program)>;
  virtual Status Step(double lr, const Watcher& watch) = 0;
  Status Step(double lr) final { return Step(lr, {}); }

  // Remember copies the state, and UndoStep restores parameters, moments and buffers from the copy.
  // An undone step still counts: its data are skipped.
  virtual void Remember() = 0;
  virtual void UndoStep() = 0;
  // Returns the mean validation loss over the rows of step `number` (from 1). It does not depend on
  // the number of micro-batches. Frees the gradients of the last step.
  virtual Result<double> Evaluate(const BatchSource& batches, int64_t number,
                                  const Watcher& watch) = 0;
  Result<double> Evaluate(const BatchSource& batches, int64_t number) {
    return Evaluate(batches, number, {});
  }
  // Starts copying the loss and the gradient norm of the first rank to the host. Read waits for
  // these copies only, even if another step has started since. The norm is unset without clipping.
  virtual void StartReading() = 0;
  virtual std::pair<double, std::optional<double>> Read() = 0;
  // Whether the next step can start before the last one is read: the host reads nothing else of a
  // step.
  virtual bool can_run_ahead() const = 0;
  // Metrics of the step, summed over its micro-batches.
  virtual const std::vector<StepMetric>& metrics() const = 0;
  // Time that the step waited for data, in seconds.
  virtual double data_seconds() const = 0;
  // The sessions that have the state, with distinct ranks.
  virtual std::vector<const Session*> sessions() const = 0;
};

}  // namespace heddle::run
