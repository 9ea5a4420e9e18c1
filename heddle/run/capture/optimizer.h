// Records the optimizer of a captured step: clipping by global norm, then the update of each
// parameter.
#pragma once

#include "heddle/run/capture/capture.h"
#include "heddle/run/capture/recorder.h"

namespace heddle::run {

struct OptimizerInputs {
  // State of one parameter; undefined where its rule has none.
  struct State {
    at::Tensor exp_avg;
    at::Tensor exp_avg_sq;
    at::Tensor momentum_buffer;
  };
  std::vector<State> state;
  // Inputs that change from step to step: the learning rate, with the element type and memory space
  // that the kernel needs, and the number of the step, from 1. SGD without momentum has no step.
  at::Tensor lr;
  at::Tensor step;
};

// Adds inputs for the state of every trainable parameter, `opt N "exp_avg"` and `opt N
// "exp_avg_sq"` or `opt N "momentum_buffer"`, and `hyper "lr"` and `hyper "step"`.
OptimizerInputs AddOptimizerInputs(Recorder& recorder, std::span<const ParamSpec> params,
                                   const CaptureOptions& options);

// Adds an input `opt N "grad"` for every trainable parameter: the sum of its gradients over the
// previous micro-batches of the step. Returns undefined tensors for other parameters.
std::vector<at::Tensor> AddGradientSums(Recorder& recorder, std::span<const ParamSpec> params,
                                        DType dtype);
// Adds the gradients to the sums, and outputs that update the sums. Returns the new sums.
std::vector<at::Tensor> RecordAccumulation(Recorder& recorder, Graph& graph,
                                           std::span<const ParamSpec> specs,
                                           std::span<const at::Tensor> sums,
                                           std::span<const at::Tensor> grads);
// Adds an output that updates an input.
void RecordUpdate(Recorder& recorder, Graph& graph, const at::Tensor& old_value,
                  const at::Tensor& new_value);

// Records the updates of all trainable parameters and their state, and adds the outputs.
Status RecordOptimizer(Recorder& recorder, Graph& graph, std::span<const ParamSpec> specs,
                       std::span<const at::Tensor> params, std::span<const at::Tensor> grads,
                       const OptimizerInputs& inputs, const OptimizerOptions& options);

// The global gradient norm, and the factor that scales the gradients: min(1, max_norm / (norm +
// 1e-6)), as torch.nn.utils.clip_grad_norm_ computes it.
struct ClipFactor {
  at::Tensor norm;
  at::Tensor factor;
};
ClipFactor ComputeClipFactor(std::span<const at::Tensor> grads, double max_norm);

}  // namespace heddle::run
