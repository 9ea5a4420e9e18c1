// Capture: one training step, written in C++ over ATen, as one flat graph.
//
// The step runs once on traced tensors, which have shapes but no data; then autograd runs backward through the same tensors.
// Every ATen call on the way becomes a node with the scope of its module and the phase it belongs to: a backward node gets the
// scope of the forward op whose gradient it computes. Nothing is lost silently: a call that cannot be recorded faithfully ends
// the capture with an error that names the op and the scope.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle::run {

struct ParamSpec {
  // Full name: `layers.0.attention.wq.weight`.
  std::string name;
  std::vector<int64_t> shape;
  // The FSDP unit it belongs to.
  std::string unit;
  bool trainable = true;
};

struct StepInput {
  std::string name;
  // kBatch, kBuffer or kHyper.
  InputRole role = InputRole::kBatch;
  DType dtype = DType::kI64;
  std::vector<int64_t> shape;
};

// How PyTorch computes AdamW: one kernel for a parameter, or one after the other. Their bits differ.
enum class AdamW : uint8_t { kFused, kForLoop };

// Clip by global norm, then AdamW, for every trainable parameter. The learning rate is an input: a schedule changes it.
struct OptimizerOptions {
  AdamW implementation = AdamW::kFused;
  double beta1 = 0.9;
  double beta2 = 0.95;
  double eps = 1e-8;
  double weight_decay = 0.1;
  // No clipping if not positive.
  double max_norm = 1.0;
};

struct CaptureOptions {
  std::string graph_name = "step";
  DType param_dtype = DType::kF32;
  // The fused optimizer reads the learning rate from device memory, as f32, instead of from the
  // host as f64. Parameters in f32 get the same bits either way, and a recorded step can be
  // replayed with another rate.
  bool lr_on_device = false;
  // Appends the optimizer as phase `opt` if set; its state become inputs, and outputs that update them.
  std::optional<OptimizerOptions> optimizer = {};
  // Gradients are added to those of the batches before this one in the step: inputs `opt N "grad"`, which are updated. The optimizer
  // takes the sums.
  bool accumulate = false;
  // The loss alone.
  bool forward_only = false;
  // What the step measures is an output, too: `metric "NAME"`.
  bool metrics = false;
};

// The loss of one step. Tensors come in the order of the specs. It must use nothing but ATen.
using StepFunction = std::function<at::Tensor(std::span<const at::Tensor> params,
                                              std::span<const at::Tensor> inputs)>;

// A buffer that a step changes: its place among the inputs, and what the step saw that its next value depends on. What ranks saw of
// their parts of the batch adds up. Where a step has several batches, a buffer of the same name with kSeenSuffix adds up what they saw; it
// is empty between steps.
inline constexpr std::string_view kSeenSuffix = ".seen";
inline bool CountsBatches(std::string_view buffer) { return buffer.ends_with(kSeenSuffix); }
struct BufferChange {
  size_t input = 0;
  at::Tensor seen;
};
// What is worth knowing of a step beside its loss. Ranks' parts add up.
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
// The next value of a buffer, without gradients.
using BufferRule = std::function<at::Tensor(const at::Tensor& buffer, const at::Tensor& seen)>;

// A global module without a mesh: parameters, optimizer state, buffers and batch in; loss and one gradient for each trainable
// parameter out.
Result<Module> Capture(const StepFunction& step, std::span<const ParamSpec> params,
                       std::span<const StepInput> inputs, const CaptureOptions& options = {});
// With an optimizer, buffers that the step changes are updated, too.
Result<Module> Capture(const ChangingStep& step, const BufferRule& rule,
                       std::span<const ParamSpec> params, std::span<const StepInput> inputs,
                       const CaptureOptions& options);

}  // namespace heddle::run
