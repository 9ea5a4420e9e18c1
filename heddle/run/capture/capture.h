// Capture: records a training step, written in C++ over ATen, as one flat graph.
//
// The step runs once on traced tensors, which have shapes but no data. Autograd then runs backward
// through the same tensors. Every ATen call becomes a node with the scope of its module and its
// phase. A backward node gets the scope of the forward op whose gradient it computes. A call that
// cannot be recorded exactly ends the capture with an error that names the op and the scope.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"
#include "heddle/run/capture/optimizer_options.h"

namespace heddle::run {

struct StepInput {
  std::string name;
  // kBatch, kBuffer or kHyper.
  InputRole role = InputRole::kBatch;
  DType dtype = DType::kI64;
  std::vector<int64_t> shape;
};

struct CaptureOptions {
  std::string graph_name = "step";
  DType param_dtype = DType::kF32;
  // The fused optimizer reads the learning rate from device memory, as f32, instead of from the
  // host as f64. Parameters in f32 get the same bits either way, and a recorded step can be
  // replayed with another rate.
  bool lr_on_device = false;
  // Appends the optimizer as phase `opt`. Its state becomes inputs, and outputs that update them.
  std::optional<OptimizerOptions> optimizer = {};
  // Adds the gradients to those of the previous micro-batches of the step. The sums are inputs `opt
  // N "grad"` that the graph updates, and the optimizer reads them.
  bool accumulate = false;
  // Captures the loss only.
  bool forward_only = false;
  // Makes each metric of the step an output `metric "NAME"`.
  bool metrics = false;
};

// Computes the loss of one step. Tensors are in the order of the specs. Calls only ATen ops.
using StepFunction = std::function<at::Tensor(std::span<const at::Tensor> params,
                                              std::span<const at::Tensor> inputs)>;

// A buffer that a step changes: its position among the inputs, and a tensor `seen` that determines
// its next value. For example, the number of tokens that each expert received. `seen` is summed
// over ranks. If a step has several micro-batches, a second buffer, named with kSeenSuffix, sums
// `seen` over them. It is zero between steps.
inline constexpr std::string_view kSeenSuffix = ".seen";
inline bool CountsBatches(std::string_view buffer) { return buffer.ends_with(kSeenSuffix); }
struct BufferChange {
  size_t input = 0;
  at::Tensor seen;
};
// A metric of a step, other than its loss. It is summed over ranks.
struct StepMetric {
  std::string name;
  at::Tensor value;
};
struct StepResult {
  at::Tensor loss;
  std::vector<BufferChange> changes = {};
  std::vector<StepMetric> metrics = {};
};
using ChangingStep = std::function<StepResult(std::span<const at::Tensor> params,
                                              std::span<const at::Tensor> inputs)>;
// Returns the next value of a buffer. Has no gradient.
using BufferRule = std::function<at::Tensor(const at::Tensor& buffer, const at::Tensor& seen)>;

// Captures a global module without a mesh. Its inputs are parameters, optimizer state, buffers and
// the batch. Its outputs are the loss and one gradient for each trainable parameter.
Result<Module> Capture(const StepFunction& step, std::span<const ParamSpec> params,
                       std::span<const StepInput> inputs, const CaptureOptions& options = {});
// Also captures buffers that the step changes. With an optimizer, the graph updates them by `rule`.
Result<Module> Capture(const ChangingStep& step, const BufferRule& rule,
                       std::span<const ParamSpec> params, std::span<const StepInput> inputs,
                       const CaptureOptions& options);

}  // namespace heddle::run
