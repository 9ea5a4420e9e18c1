// BoundStep: a compiled graph of a training step, bound to its input tensors.
//
// A step has one graph, or several if it sums gradients of micro-batches. They share the ranks'
// state: the tensors are the same, and the graphs update them in place.
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

// Returns rows of the batch of a step. Rows count over all ranks and all micro-batches of the step.
using BatchSource = std::function<Result<Batch>(int64_t step, int64_t first_row, int64_t rows)>;

// The state of a rank between steps.
struct RankState {
  // The state of a parameter. Undefined where no graph has it.
  struct Param {
    at::Tensor value;
    at::Tensor exp_avg;
    at::Tensor exp_avg_sq;
    at::Tensor momentum_buffer;
    // Sum over the micro-batches so far, before clipping. Freed before anything else runs.
    at::Tensor grad;
  };
  std::vector<Param> params;
  std::map<std::string, at::Tensor> buffers;
};

// Numbers that are set before each step, the same on all ranks.
struct StepNumbers {
  explicit StepNumbers(c10::Device device);

  void SetLr(double value);
  // Returns the learning rate in the type and memory space that a graph needs.
  const at::Tensor& LrOf(DType type, Space space) const;

  at::Tensor step;
  // The divisor of the loss, if it is an input.
  at::Tensor token_count;

 private:
  // In host memory, and on the device as f64 and as f32.
  at::Tensor lr_;
  at::Tensor lr_on_device_;
  at::Tensor narrow_lr_;
};

enum class BatchPart : uint8_t { kTokens, kLabels, kDocumentPositions };

class BoundStep {
 public:
  // A position among the inputs or outputs of the graph.
  using Place = std::optional<size_t>;
  struct ParamPlaces {
    Place value;
    Place exp_avg;
    Place exp_avg_sq;
    Place momentum_buffer;
    // The gradient sum among the inputs, and the gradient among the outputs.
    Place grad_sum;
    Place grad;
  };

  // Compiles a local graph of the model's step: that of the ranks in `options`, if coordinates of a
  // pipeline have graphs of their own.
  static Result<BoundStep> Make(const Model& model, const Module& local,
                                const RankProgramOptions& options);

  // Binds inputs that are the same tensors in every step. A graph need not take all of them.
  void Bind(std::span<const RankState> states, const StepNumbers& numbers);
  // Binds sums of gradients, which are new tensors in every step. Undefined tensors free the last
  // ones.
  void BindGradients(std::span<const RankState> states);
  // Loads rows of a micro-batch that begins at `first_row` of the step.
  Status SetBatch(const BatchSource& batches, int64_t step, int64_t first_row);
  // Records and replays later runs. The recorder must outlive this object.
  void RecordWith(RunRecorder& recorder) { recorder_ = &recorder; }
  // Runs the graph. Keeps the loss, the metrics and the gradients; frees all other outputs, and the
  // batch unless runs are recorded. `mode` is for recorded runs. With an observer, nodes run one
  // after the other.
  Status Run(StepReplay::Mode mode, const RankProgram::Observer& observer = {});
  // Why runs are not recorded, although there is a recorder: the node and the reason.
  const std::optional<std::string>& refusal() const { return replay_.refusal(); }
  // Whether later runs replay a recording, which reads its batch at a fixed address.
  bool is_recorded() const { return replay_.is_recorded(); }
  // Moves a gradient of the last run out of this object.
  at::Tensor TakeGradient(size_t at, size_t param);
  void ReleaseGradients();

  const RankProgram& program() const { return program_; }
  // The axis whose coordinates have graphs of their own (ProgramAxis).
  std::optional<AxisId> program_axis() const { return program_axis_; }
  const ParamPlaces& places(size_t param) const { return params_[param]; }
  // Buffers that are inputs of the graph, with their positions.
  const std::map<std::string, size_t>& buffers() const { return buffers_; }
  // Whether the graph updates the tensor of input `i`.
  bool updates(size_t i) const { return updates_[i]; }
  // Returns a rank's shard of input `i`, by the rank's position in this process. If the graph
  // updates the input, the shard does not share storage with `whole`.
  at::Tensor ShardOfInput(size_t i, const at::Tensor& whole, size_t at) const;
  // Whether the divisor of the loss is an input.
  bool takes_token_count() const { return token_count_.has_value(); }
  // Rows that a run of all ranks reads: those of a micro-batch, or of all micro-batches of a
  // pipeline.
  int64_t rows() const { return rows_; }
  // Outputs of the last run; undefined before it, and if the graph has none.
  at::Tensor loss(size_t at) const { return OutputAt(at, loss_); }
  at::Tensor grad_norm(size_t at) const { return OutputAt(at, grad_norm_); }
  // By name, in the order of the graph. The same on all ranks.
  std::vector<StepMetric> metrics() const;

 private:
  explicit BoundStep(RankProgram program) : program_(std::move(program)) {}
  void FindInputs(const Model& model);
  bool FindBatchInput(size_t i);
  void FindOutputs();
  at::Tensor OutputAt(size_t at, Place place) const;

  RankProgram program_;
  std::optional<AxisId> program_axis_;
  int64_t rows_ = 0;
  RunRecorder* recorder_ = nullptr;
  StepReplay replay_;
  // By parameter.
  std::vector<ParamPlaces> params_;
  std::map<std::string, size_t> buffers_;
  // A batch input of one micro-batch.
  struct BatchPlace {
    size_t input = 0;
    BatchPart part = BatchPart::kTokens;
    int64_t micro_batch = 0;
  };
  std::vector<BatchPlace> batch_;
  Place lr_;
  Place step_;
  Place token_count_;
  Place loss_;
  Place grad_norm_;
  // Positions of outputs that are other metrics.
  std::vector<size_t> metrics_;
  // Positions of outputs that are new values of inputs.
  std::vector<size_t> update_outputs_;
  // By input.
  std::vector<bool> updates_;
  // Inputs whose new values kernels write elsewhere, with the positions of these values among the
  // outputs.
  std::vector<std::pair<size_t, size_t>> copied_back_;
  // By rank of this process. Outputs are empty before the first run.
  std::vector<Tensors> inputs_;
  std::vector<Tensors> outputs_;
};

}  // namespace heddle::run
