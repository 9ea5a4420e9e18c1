// Program: a graph of a training step, compiled for running, and what stands where among its inputs and outputs.
//
// A step has one, or several where gradients of several batches add up. They share the state of ranks: the tensors are the same, and
// graphs update them in place.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "heddle/run/models/init.h"
#include "heddle/run/models/model.h"
#include "heddle/run/runtime/recorder.h"

namespace heddle::run {

// Rows of the batch of a step, counted over all ranks and all batches of the step.
using BatchSource = std::function<Result<Batch>(int64_t step, int64_t first_row, int64_t rows)>;

// What a rank holds between steps.
struct RankState {
  // Of a parameter. Undefined where no graph has it.
  struct Param {
    at::Tensor value;
    at::Tensor exp_avg;
    at::Tensor exp_avg_sq;
    // Sum over the step's batches so far, before clipping. Released before anything else runs.
    at::Tensor grad;
  };
  std::vector<Param> params;
  std::map<std::string, at::Tensor> buffers;
};

// What a schedule sets before a step, the same on all ranks.
struct StepNumbers {
  explicit StepNumbers(c10::Device device);

  void SetLr(double value);
  // The learning rate in the type and memory that a graph takes it from.
  const at::Tensor& LrOf(DType type, Space space) const;

  at::Tensor step;
  // What the loss is divided by, where that is given.
  at::Tensor token_count;

 private:
  // In host memory; on the device as f64 and as f32.
  at::Tensor lr_;
  at::Tensor lr_on_device_;
  at::Tensor narrow_lr_;
};

class Program {
 public:
  // A position among the inputs or outputs of the graph.
  using Place = std::optional<size_t>;
  struct ParamPlaces {
    Place value;
    Place exp_avg;
    Place exp_avg_sq;
    // The sum that comes in, and the gradient that goes out.
    Place grad_sum;
    Place grad;
  };

  // A local graph of the model's step.
  static Result<Program> Make(const Model& model, const Module& local, const WorldOptions& options);

  // Inputs that stay the same tensors. A graph need not take all of them.
  void Bind(std::span<const RankState> states, const StepNumbers& numbers);
  // Sums of gradients, which are new tensors in every step. Undefined tensors free the last ones.
  void BindGradients(std::span<const RankState> states);
  // Rows of a batch that begins at `first_row` of the step.
  Status SetBatch(const BatchSource& batches, int64_t step, int64_t first_row);
  // Runs are recorded and replayed from now on. The recorder outlives this program.
  void RecordWith(RunRecorder& recorder) { recorder_ = &recorder; }
  // Keeps the loss, the metrics and the gradients; frees all other outputs, and the batch unless
  // runs are recorded. `mode` is for recorded runs. With an observer, nodes run one after the
  // other.
  Status Run(StepReplay::Mode mode, const World::Observer& observer = {});
  // Why runs are not recorded, although there is a recorder: the node and the reason.
  const std::optional<std::string>& refusal() const { return replay_.refusal(); }
  // Whether later runs replay a recording, which reads its batch at one address.
  bool is_recorded() const { return replay_.is_recorded(); }
  // Moves a gradient of the last run out of the program.
  at::Tensor TakeGradient(size_t at, size_t param);
  void ReleaseGradients();

  const World& world() const { return world_; }
  const ParamPlaces& places(size_t param) const { return params_[param]; }
  // Buffers that the graph takes, with their positions.
  const std::map<std::string, size_t>& buffers() const { return buffers_; }
  // Whether running the graph updates the tensor of input `i`.
  bool updates(size_t i) const { return updates_[i]; }
  // What a rank holds of input `i`, by its position among the ranks of this process. Belongs to the rank if the graph updates it.
  at::Tensor ShardOfInput(size_t i, const at::Tensor& whole, size_t at) const;
  // Whether the loss is divided by a number that is given.
  bool takes_token_count() const { return token_count_.has_value(); }
  // Rows of a batch.
  int64_t rows() const;
  // Of the last run; undefined before it, and where the graph has none.
  at::Tensor loss(size_t at) const { return OutputAt(at, loss_); }
  at::Tensor grad_norm(size_t at) const { return OutputAt(at, grad_norm_); }
  // By name, in the order of the graph. The same on all ranks.
  std::vector<StepMetric> metrics() const;

 private:
  explicit Program(World world) : world_(std::move(world)) {}
  void FindInputs(const Model& model);
  void FindOutputs();
  at::Tensor OutputAt(size_t at, Place place) const;

  World world_;
  RunRecorder* recorder_ = nullptr;
  StepReplay replay_;
  // By parameter.
  std::vector<ParamPlaces> params_;
  std::map<std::string, size_t> buffers_;
  Place tokens_;
  Place labels_;
  Place lr_;
  Place step_;
  Place token_count_;
  Place loss_;
  Place grad_norm_;
  // The outputs that are other metrics.
  std::vector<size_t> metrics_;
  // The outputs that are new values of inputs.
  std::vector<size_t> update_outputs_;
  // By input.
  std::vector<bool> updates_;
  // Inputs that the graph updates with values of kernels that write elsewhere, and where these are among the outputs.
  std::vector<std::pair<size_t, size_t>> copied_back_;
  // By rank of this process. Empty outputs before the first run.
  std::vector<Tensors> inputs_;
  std::vector<Tensors> outputs_;
};

}  // namespace heddle::run
