// The optimizer of a captured step: clip by global norm, then AdamW for each parameter.
#pragma once

#include "heddle/run/capture/capture.h"
#include "heddle/run/capture/recorder.h"

namespace heddle::run {

struct OptimizerInputs {
  // Of one trainable parameter; undefined for others.
  struct Moments {
    at::Tensor exp_avg;
    at::Tensor exp_avg_sq;
  };
  std::vector<Moments> moments;
  // What a schedule changes: the learning rate, as wide as schedules compute it and in the memory where kernels want it; and the
  // number of the step, from 1.
  at::Tensor lr;
  at::Tensor step;
};

// Inputs `opt N "exp_avg"` and `"exp_avg_sq"` for every trainable parameter, and `hyper "lr"` and `"step"`.
OptimizerInputs AddOptimizerInputs(Recorder& recorder, std::span<const ParamSpec> params,
                                   const CaptureOptions& options);

// Inputs `opt N "grad"`, one for every trainable parameter: its gradient of the batches before this one in the step. Undefined for
// other parameters.
std::vector<at::Tensor> AddGradientSums(Recorder& recorder, std::span<const ParamSpec> params,
                                        DType dtype);
// Adds gradients to the sums, and outputs that update them. Answers with the new sums.
std::vector<at::Tensor> RecordAccumulation(Recorder& recorder, Graph& graph,
                                           std::span<const ParamSpec> specs,
                                           std::span<const at::Tensor> sums,
                                           std::span<const at::Tensor> grads);
// An output that updates an input.
void RecordUpdate(Recorder& recorder, Graph& graph, const at::Tensor& old_value,
                  const at::Tensor& new_value);

// Records the update of every trainable parameter and its state, and adds the outputs.
Status RecordOptimizer(Recorder& recorder, Graph& graph, std::span<const ParamSpec> specs,
                       std::span<const at::Tensor> params, std::span<const at::Tensor> grads,
                       const OptimizerInputs& inputs, const OptimizerOptions& options);

// The factor that gradients are multiplied by: min(1, max_norm / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ works it out.
// Also the norm itself.
struct ClipFactor {
  at::Tensor norm;
  at::Tensor factor;
};
ClipFactor ComputeClipFactor(std::span<const at::Tensor> grads, double max_norm);

}  // namespace heddle::run
