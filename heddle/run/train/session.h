// Session: a job that was compiled, the state of the ranks of this process, and steps on it.
//
// A step makes the batch of its ranks, sets the learning rate and the number of the step, and runs the graph, which updates the state
// in place. Where a step has several batches, their gradients add up first: as many as the step is longer than a batch.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/Event.h>

#include "heddle/run/train/batches_ahead.h"
#include "heddle/run/train/program.h"
#include "heddle/run/train/training_run.h"

namespace heddle::run {

// A whole parameter, by its number in registration order. Asked for one after the other, so that one at a time is in memory.
using ParamSource = std::function<Result<at::Tensor>(size_t param)>;

// The same on every mesh, from a seed.
ParamSource InitialParams(const Model& model, uint64_t seed);
BatchSource SyntheticBatches(const Model& model, uint64_t seed);

// What a run that is resumed has.
struct SavedState {
  int64_t steps = 0;
  // Of a parameter, whole.
  std::function<Result<at::Tensor>(Held held, size_t param)> held;
  // A buffer that steps update, by its name.
  std::function<Result<at::Tensor>(const std::string& name)> buffer;
};

// The local graphs of a job.
struct StepModules {
  // The model's step with its optimizer. It adds to gradients of batches before it, if there are any.
  const Module* step = nullptr;
  // Where a step has several batches: the first one, and those between the first and the last.
  const Module* first = nullptr;
  const Module* more = nullptr;
  // The loss alone, for data that nothing learns from.
  const Module* forward = nullptr;
};

struct SessionOptions {
  WorldOptions world;
  // Where ranks are processes: what connects the ranks of each graph, instead of `world`.
  std::function<Result<WorldOptions>(const Module&)> world_of = {};
  // Orders each graph for fused kernels, and makes their backend (WorldOptions::kernels).
  std::function<ArrangedKernels(const Graph& graph)> kernels = {};
  // Makes what records steps and replays them; steps run as launches without it. Called for the
  // training graphs, and for validation.
  std::function<Result<std::unique_ptr<RunRecorder>>()> recorder = {};
  // Told once why a graph cannot be recorded, as a line.
  std::function<void(const std::string& line)> notice = [](const std::string&) {};
  ParamSource params;
  BatchSource batches;
  // Batches of a step.
  int64_t accumulated = 1;
  // Divide the loss by all labels, ignored ones included, where graphs take the number as input.
  bool count_ignored = false;
  // Instead of `params`, and of moments that are zeros.
  std::optional<SavedState> saved = {};
};

class Session final : public TrainingRun {
 public:
  static Result<Session> Make(const Model& model, const StepModules& modules,
                              const SessionOptions& options);
  static Result<Session> Make(const Model& model, const Module& step,
                              const SessionOptions& options) {
    return Make(model, StepModules{.step = &step}, options);
  }

  Status Step(double lr) override { return Step(lr, {}); }
  // Makes an observer for a run of a graph (World::Run).
  using Watcher = std::function<World::Observer(const World& world)>;
  Status Step(double lr, const Watcher& watch);
  // Copies the state, so that the next step can be undone. Undoing takes the parameters, moments and buffers back, and counts the step
  // as done all the same: its data are passed over.
  void Remember();
  void UndoStep();
  // The mean validation loss over the rows of step `number` (from 1). It does not depend on the
  // number of batches that these rows are split into. Frees the gradients of the last step.
  Result<double> Evaluate(const BatchSource& batches, int64_t number, const Watcher& watch = {});

  int64_t steps() const override { return steps_; }
  std::span<const int64_t> ranks() const override { return world().ranks(); }
  // The mean of a step's batches.
  at::Tensor loss(size_t at) const override { return losses_[at]; }
  at::Tensor grad_norm(size_t at) const override { return step_.grad_norm(at); }
  // Starts to copy the loss and the norm of the gradients of rank 0 to the host. Read waits for them
  // alone, even if another step has started since. Without clipping there is no norm.
  void StartReading();
  std::pair<double, std::optional<double>> Read();
  // Whether the next step can start before the last one is read: nothing else of a step is read on
  // the host.
  bool can_run_ahead() const {
    return step_.is_recorded() && accumulated_ == 1 && metrics_.empty();
  }
  // What the graph measured, added up over the batches of the step.
  const std::vector<StepMetric>& metrics() const { return metrics_; }
  // What the data of the step took, in seconds.
  double data_seconds() const { return data_seconds_; }
  // Gradients exist until the next Step or Evaluate.
  at::Tensor held(Held held, size_t at, size_t param) const override;
  // A buffer that steps update, its place among the inputs of world(), and what a rank holds of it.
  struct UpdatedBuffer {
    std::string name;
    size_t input = 0;
    at::Tensor tensor;
  };
  std::vector<UpdatedBuffer> updated_buffers(size_t at) const;

  // That of the step.
  const World& world() const { return step_.world(); }
  // What updates a parameter, or holds its moments: its place among the inputs of world().
  std::optional<size_t> InputOf(Held held, size_t param) const;

 private:
  explicit Session(Program step) : step_(std::move(step)), numbers_(c10::kCPU) {}
  std::vector<Program*> programs();
  void MakeRecorders(const SessionOptions& options);
  // Runs a program, and gives notice if it cannot be recorded.
  Status RunProgram(Program& program, int64_t runs_before, const Watcher& watch);
  Status InitState(const Model& model, const SessionOptions& options);
  Status InitBuffers(const Model& model, const SessionOptions& options);
  // Runs a batch of the step.
  void PrepareNext();
  Status RunBatch(Program& program, int64_t batch, const Watcher& watch);
  // The tensors that a step writes over.
  std::vector<at::Tensor> Updated() const;
  // Keeps the gradients of the first batch; graphs add those of later batches to them.
  void TakeGradients(Program& program, int64_t batch);
  void ReleaseGradients();
  // Sets the divisor of the loss: the labels that count, over all batches of step `number`.
  Status CountTokens(const BatchSource& batches, int64_t number);

  // Validation runs between the steps: it has memory of its own, so that it leaves the outputs of a
  // step as they are. Recorders go last, after everything that was recorded.
  std::unique_ptr<RunRecorder> recorder_;
  std::unique_ptr<RunRecorder> forward_recorder_;
  std::function<void(const std::string&)> notice_;
  Program step_;
  std::optional<Program> first_;
  std::optional<Program> more_;
  std::optional<Program> forward_;
  std::unique_ptr<BatchesAhead> ahead_;
  // From ahead_.
  BatchSource batches_;
  // The step whose batch the program has already; 0: none.
  int64_t placed_step_ = 0;
  int64_t accumulated_ = 1;
  bool count_ignored_ = false;
  int64_t steps_ = 0;
  // Steps of this session; the first ones warm up.
  int64_t steps_run_ = 0;
  int64_t forwards_run_ = 0;
  StepNumbers numbers_;
  // By rank of this process.
  std::vector<RankState> states_;
  // Copies of what steps update, in the order of Updated().
  std::vector<at::Tensor> remembered_;
  std::vector<at::Tensor> losses_;
  std::vector<StepMetric> metrics_;
  // Host memory for the loss and the norm that are being read, and when they are there.
  at::Tensor read_loss_;
  at::Tensor read_norm_;
  std::optional<c10::Event> read_;
  double data_seconds_ = 0;
};

}  // namespace heddle::run
