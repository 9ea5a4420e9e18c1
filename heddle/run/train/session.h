// Session: a compiled job, the state of the ranks of this process, and its training steps.
//
// A step loads the batches of its ranks, sets the learning rate and the step number, and runs the
// graph, which updates the state in place. With several micro-batches, the step sums their
// gradients first.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include <c10/core/Event.h>

#include "heddle/run/runtime/weight_copies.h"
#include "heddle/run/train/batches_ahead.h"
#include "heddle/run/train/graph_run.h"

namespace heddle::run {

// Returns a whole parameter, by its index in registration order. Called for one parameter after the
// other, so that only one is in memory.
using ParamSource = std::function<Result<at::Tensor>(size_t param)>;

// Draws parameters or batches from a seed: the same on every mesh.
ParamSource InitialParams(const Model& model, uint64_t seed);
BatchSource SyntheticBatches(const Model& model, uint64_t seed);

// The state of a run to resume.
struct SavedState {
  int64_t steps = 0;
  // Returns a whole tensor of a parameter's state.
  std::function<Result<at::Tensor>(StateKind kind, size_t param)> param_state;
  // Returns a buffer that steps update, by its name.
  std::function<Result<at::Tensor>(const std::string& name)> buffer;
};

// The local graphs of a job.
struct StepModules {
  // The model's step with its optimizer. It adds to the gradients of earlier micro-batches, if
  // there are any.
  const Module* step = nullptr;
  // With several micro-batches: the first one, and those between the first and the last.
  const Module* first = nullptr;
  const Module* more = nullptr;
  // The loss only, for validation.
  const Module* forward = nullptr;
};

struct SessionOptions {
  RankProgramOptions program;
  // If ranks are processes: returns the options for each graph, instead of `program`.
  std::function<Result<RankProgramOptions>(const Module&)> program_of = {};
  // Orders each graph for fused kernels, and makes their backend (RankProgramOptions::kernels).
  // Called for the step first. The graphs of a session share `copies`.
  std::function<ArrangedKernels(const Graph& graph, const std::shared_ptr<WeightCopies>& copies)>
      kernels = {};
  // Makes the recorder of steps; without it, steps run as launches. Called for the training graphs,
  // and for validation.
  std::function<Result<std::unique_ptr<RunRecorder>>()> recorder = {};
  // Called once with the reason if a graph cannot be recorded.
  std::function<void(const std::string& line)> notice = [](const std::string&) {};
  ParamSource params;
  BatchSource batches;
  // Number of micro-batches per step.
  int64_t accumulated = 1;
  // Divides the loss by the number of all labels, including ignored ones, if graphs take the number
  // as input.
  bool count_ignored = false;
  // Initial state, instead of `params` and zero moments.
  std::optional<SavedState> saved = {};
};

class Session final : public GraphRun {
 public:
  static Result<Session> Make(const Model& model, const StepModules& modules,
                              const SessionOptions& options);
  static Result<Session> Make(const Model& model, const Module& step,
                              const SessionOptions& options) {
    return Make(model, StepModules{.step = &step}, options);
  }

  using GraphRun::Step;
  Status Step(double lr, const Watcher& watch) override;
  void Remember() override;
  void UndoStep() override;
  using GraphRun::Evaluate;
  Result<double> Evaluate(const BatchSource& batches, int64_t number,
                          const Watcher& watch) override;

  int64_t steps() const override { return steps_; }
  std::span<const int64_t> ranks() const override { return program().ranks(); }
  // The mean over the micro-batches of a step.
  at::Tensor loss(size_t at) const override { return losses_[at]; }
  at::Tensor grad_norm(size_t at) const override { return step_.grad_norm(at); }
  void StartReading() override;
  std::pair<double, std::optional<double>> Read() override;
  bool can_run_ahead() const override {
    return step_.is_recorded() && accumulated_ == 1 && metrics_.empty();
  }
  const std::vector<StepMetric>& metrics() const override { return metrics_; }
  double data_seconds() const override { return data_seconds_; }
  std::vector<const Session*> sessions() const override { return {this}; }
  // Gradients exist until the next Step or Evaluate.
  at::Tensor state(StateKind kind, size_t at, size_t param) const override;
  // A buffer that steps update: its position among the inputs of program(), and a rank's shard.
  struct UpdatedBuffer {
    std::string name;
    size_t input = 0;
    at::Tensor tensor;
  };
  std::vector<UpdatedBuffer> updated_buffers(size_t at) const;

  // The axis whose coordinates have graphs and state of their own.
  std::optional<AxisId> program_axis() const { return step_.program_axis(); }
  // The graph of the step.
  const RankProgram& program() const { return step_.program(); }
  // Returns the position of a parameter or its moment among the inputs of program(); nullopt if it
  // is not an input.
  std::optional<size_t> InputOf(StateKind kind, size_t param) const;

 private:
  explicit Session(BoundStep step) : step_(std::move(step)), numbers_(c10::kCPU) {}
  std::vector<BoundStep*> bound_steps();
  void MakeRecorders(const SessionOptions& options);
  // Runs a graph of the step. Calls `notice` if it cannot be recorded.
  Status RunBoundStep(BoundStep& bound, int64_t runs_before, const Watcher& watch);
  Status InitState(const Model& model, const SessionOptions& options);
  Status InitBuffers(const Model& model, const SessionOptions& options);
  // Casts the parameters with copies, unless their copies are up to date.
  void UpdateCopies();
  Status RunBatches(const Watcher& watch);
  // Runs a micro-batch of the step.
  void PrepareNext();
  Status RunBatch(BoundStep& bound, int64_t batch, const Watcher& watch);
  // Returns the tensors that a step updates.
  std::vector<at::Tensor> Updated() const;
  // Keeps the gradients of the first micro-batch; the graphs of later ones add to them.
  void TakeGradients(BoundStep& bound, int64_t batch);
  void ReleaseGradients();
  // Sets the divisor of the loss: the labels that count, over all micro-batches of step `number`.
  Status CountTokens(const BatchSource& batches, int64_t number);

  // Validation has its own recorder, because it runs between steps and must not overwrite their
  // outputs. Declared first: recorders must outlive all recordings.
  std::unique_ptr<RunRecorder> recorder_;
  std::unique_ptr<RunRecorder> forward_recorder_;
  std::function<void(const std::string&)> notice_;
  BoundStep step_;
  std::optional<BoundStep> first_;
  std::optional<BoundStep> more_;
  std::optional<BoundStep> forward_;
  std::unique_ptr<BatchesAhead> ahead_;
  // Reads from ahead_.
  BatchSource batches_;
  // The step whose batch is already in the inputs; 0: none.
  int64_t placed_step_ = 0;
  int64_t accumulated_ = 1;
  bool count_ignored_ = false;
  int64_t steps_ = 0;
  // Number of steps of this session; the first ones warm up.
  int64_t steps_run_ = 0;
  int64_t forwards_run_ = 0;
  StepNumbers numbers_;
  // By rank of this process.
  std::vector<RankState> states_;
  std::shared_ptr<WeightCopies> copies_ = std::make_shared<WeightCopies>();
  // Whether all copies are the casts of their parameters.
  bool copied_ = false;
  // Copies of updated tensors, in the order of Updated().
  std::vector<at::Tensor> remembered_;
  std::vector<at::Tensor> losses_;
  std::vector<StepMetric> metrics_;
  // Host memory for the loss and the norm that are being read, and the event of their arrival.
  at::Tensor read_loss_;
  at::Tensor read_norm_;
  std::optional<c10::Event> read_;
  double data_seconds_ = 0;
};

}  // namespace heddle::run
