#include "heddle/run/capture/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/div.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sqrt.h>

#include "heddle/run/aten/squared_norm.h"
#include "heddle/run/capture/scope.h"

namespace heddle::run {
namespace {

// Returns the module of a parameter: `layers.0.wq` for `layers.0.wq.weight`.
std::string ModuleOf(const std::string& param) {
  size_t dot = param.rfind('.');
  return dot == std::string::npos ? std::string() : param.substr(0, dot);
}

// Adds an input for optimizer state of parameter `i`.
at::Tensor AddStateInput(Recorder& recorder, std::span<const ParamSpec> params, size_t i,
                         const char* label, DType dtype) {
  Input input;
  input.role = InputRole::kOpt;
  input.index = static_cast<int64_t>(i);
  input.label = label;
  return recorder.AddInput(std::move(input), dtype, params[i].shape, params[i].name + "." + label);
}

struct Updated {
  at::Tensor param;
  at::Tensor exp_avg;
  at::Tensor exp_avg_sq;
};

Updated FusedAdamW(const at::Tensor& param, const at::Tensor& grad,
                   const OptimizerInputs::Moments& moments, const OptimizerInputs& inputs,
                   const OptimizerOptions& options, double decay) {
  auto [params, grads, averages, squares, maxima] =
      at::_fused_adamw({param}, {grad}, {moments.exp_avg}, {moments.exp_avg_sq}, {}, {inputs.step},
                       inputs.lr, options.beta1, options.beta2, decay, options.eps,
                       /*amsgrad=*/false, /*maximize=*/false);
  return {params[0], averages[0], squares[0]};
}

// Operands that the updates of all parameters share.
struct ForLoopNumbers {
  at::Tensor decay;
  at::Tensor minus_step_size;
  at::Tensor root;
};

ForLoopNumbers MakeForLoopNumbers(const OptimizerInputs& inputs, const OptimizerOptions& options) {
  at::Tensor step = inputs.step.to(at::kDouble);
  auto correction = [&](double beta) { return at::rsub(at::pow(beta, step), 1.0); };
  at::Tensor first = correction(options.beta1);
  at::Tensor second = correction(options.beta2);
  return {at::rsub(at::mul(inputs.lr, options.weight_decay), 1.0),
          at::neg(at::div(inputs.lr, first)), at::sqrt(second)};
}

// Follows the order of ops of PyTorch's loop. Where PyTorch calls addcdiv_ with a number that
// changes from step to step, the number is a separate factor here; addcdiv_ rounds that product,
// too.
Updated ForLoopAdamW(const at::Tensor& param, const at::Tensor& grad,
                     const OptimizerInputs::Moments& moments, const ForLoopNumbers& numbers,
                     const OptimizerOptions& options, double decay) {
  at::Tensor decayed = decay == 0 ? param : at::mul(param, numbers.decay);
  at::Tensor average = at::lerp(moments.exp_avg, grad, 1 - options.beta1);
  at::Tensor square =
      at::addcmul(at::mul(moments.exp_avg_sq, options.beta2), grad, grad, 1 - options.beta2);
  at::Tensor spread = at::add(at::div(at::sqrt(square), numbers.root), options.eps);
  at::Tensor change = at::div(at::mul(average, numbers.minus_step_size), spread);
  return {at::add(decayed, change), average, square};
}

}  // namespace

void RecordUpdate(Recorder& recorder, Graph& graph, const at::Tensor& old_value,
                  const at::Tensor& new_value) {
  Output output;
  output.role = OutputRole::kUpdate;
  output.target = recorder.ValueOf(old_value);
  output.value = recorder.ValueOf(new_value);
  graph.AddOutput(output);
}

OptimizerInputs AddOptimizerInputs(Recorder& recorder, std::span<const ParamSpec> params,
                                   const CaptureOptions& options) {
  DType dtype = options.param_dtype;
  OptimizerInputs inputs;
  inputs.moments.resize(params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    if (!params[i].trainable) continue;
    inputs.moments[i] = {AddStateInput(recorder, params, i, "exp_avg", dtype),
                         AddStateInput(recorder, params, i, "exp_avg_sq", dtype)};
  }
  auto add = [&](const char* label, DType type, Space space) {
    Input input;
    input.role = InputRole::kHyper;
    input.label = label;
    return recorder.AddInput(std::move(input), type, {}, label, space);
  };
  bool fused = options.optimizer->implementation == AdamW::kFused;
  // The fused kernel reads an f64 from the host or an f32 from the device.
  inputs.lr = fused && options.lr_on_device
                  ? add("lr", DType::kF32, Space::kDevice)
                  : add("lr", DType::kF64, fused ? Space::kHost : Space::kDevice);
  inputs.step = add("step", DType::kF32, Space::kDevice);
  return inputs;
}

std::vector<at::Tensor> AddGradientSums(Recorder& recorder, std::span<const ParamSpec> params,
                                        DType dtype) {
  std::vector<at::Tensor> sums(params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    if (params[i].trainable) sums[i] = AddStateInput(recorder, params, i, "grad", dtype);
  }
  return sums;
}

std::vector<at::Tensor> RecordAccumulation(Recorder& recorder, Graph& graph,
                                           std::span<const ParamSpec> specs,
                                           std::span<const at::Tensor> sums,
                                           std::span<const at::Tensor> grads) {
  at::NoGradGuard no_grad;
  std::vector<at::Tensor> added(grads.size());
  for (size_t i = 0; i < grads.size(); ++i) {
    if (!grads[i].defined()) continue;
    ScopeGuard scope(ModuleOf(specs[i].name));
    added[i] = at::add(sums[i], grads[i]);
    RecordUpdate(recorder, graph, sums[i], added[i]);
  }
  return added;
}

ClipFactor ComputeClipFactor(std::span<const at::Tensor> grads, double max_norm) {
  std::vector<at::Tensor> defined;
  for (const at::Tensor& grad : grads) {
    if (grad.defined()) defined.push_back(grad);
  }
  ClipFactor clip;
  clip.norm = at::linalg_vector_norm(at::sqrt(SquaredNorm(defined)), 2);
  // PyTorch computes number / tensor as reciprocal times number.
  at::Tensor ratio = at::mul(at::reciprocal(at::add(clip.norm, 1e-6)), max_norm);
  clip.factor = at::clamp(ratio, std::nullopt, 1.0);
  return clip;
}

Status RecordOptimizer(Recorder& recorder, Graph& graph, std::span<const ParamSpec> specs,
                       std::span<const at::Tensor> params, std::span<const at::Tensor> grads,
                       const OptimizerInputs& inputs, const OptimizerOptions& options) {
  at::NoGradGuard no_grad;
  ClipFactor clip;
  if (options.max_norm > 0) {
    clip = ComputeClipFactor(grads, options.max_norm);
    Output norm;
    norm.role = OutputRole::kMetric;
    norm.label = "grad_norm";
    norm.value = recorder.ValueOf(clip.norm);
    graph.AddOutput(norm);
  }
  std::optional<ForLoopNumbers> numbers;
  if (options.implementation == AdamW::kForLoop) numbers = MakeForLoopNumbers(inputs, options);
  for (size_t i = 0; i < params.size(); ++i) {
    if (!grads[i].defined()) continue;
    ScopeGuard scope(ModuleOf(specs[i].name));
    const OptimizerInputs::Moments& moments = inputs.moments[i];
    at::Tensor grad = clip.factor.defined() ? at::mul(grads[i], clip.factor) : grads[i];
    double decay = options.DecayOf(specs[i].shape.size());
    Updated updated = numbers ? ForLoopAdamW(params[i], grad, moments, *numbers, options, decay)
                              : FusedAdamW(params[i], grad, moments, inputs, options, decay);
    RecordUpdate(recorder, graph, params[i], updated.param);
    RecordUpdate(recorder, graph, moments.exp_avg, updated.exp_avg);
    RecordUpdate(recorder, graph, moments.exp_avg_sq, updated.exp_avg_sq);
  }
  return Done{};
}

}  // namespace heddle::run
