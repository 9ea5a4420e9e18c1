#include "heddle/run/capture/optimizer.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addcmul.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/div.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/lerp.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/neg.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/rsub.h>
#include <ATen/ops/sqrt.h>
#include <ATen/ops/where.h>

#include "heddle/run/aten/norms.h"
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

// New values of a parameter and its state.
struct Updated {
  at::Tensor param;
  OptimizerInputs::State state;
};

Updated FusedAdamW(const at::Tensor& param, const at::Tensor& grad,
                   const OptimizerInputs::State& state, const OptimizerInputs& inputs,
                   const OptimizerOptions& options, double decay) {
  auto [params, grads, averages, squares, maxima] =
      at::_fused_adamw({param}, {grad}, {state.exp_avg}, {state.exp_avg_sq}, {}, {inputs.step},
                       inputs.lr, options.beta1, options.beta2, decay, options.eps,
                       /*amsgrad=*/false, /*maximize=*/false);
  return {params[0], {averages[0], squares[0], {}}};
}

// Operands that the updates of all parameters share.
struct ForLoopNumbers {
  at::Tensor decay;
  at::Tensor minus_step_size;
  at::Tensor root;
  // Whether this is the first step.
  at::Tensor first;
};

ForLoopNumbers MakeForLoopNumbers(const OptimizerInputs& inputs, const OptimizerOptions& options) {
  ForLoopNumbers numbers;
  if (options.name == OptimizerName::kSgd) {
    if (options.has_momentum()) numbers.first = at::eq(inputs.step, 1);
    return numbers;
  }
  at::Tensor step = inputs.step.to(at::kDouble);
  auto correction = [&](double beta) { return at::rsub(at::pow(beta, step), 1.0); };
  at::Tensor first = correction(options.beta1);
  at::Tensor second = correction(options.beta2);
  numbers.decay = at::rsub(at::mul(inputs.lr, options.weight_decay), 1.0);
  numbers.minus_step_size = at::neg(at::div(inputs.lr, first));
  numbers.root = at::sqrt(second);
  return numbers;
}

// Follows the order of ops of PyTorch's loop. Where PyTorch calls addcdiv_ with a number that
// changes from step to step, the number is a separate factor here; addcdiv_ rounds that product,
// too.
Updated ForLoopAdamW(const at::Tensor& param, const at::Tensor& grad,
                     const OptimizerInputs::State& state, const ForLoopNumbers& numbers,
                     const OptimizerOptions& options, double decay) {
  at::Tensor decayed = decay == 0 ? param : at::mul(param, numbers.decay);
  at::Tensor average = at::lerp(state.exp_avg, grad, 1 - options.beta1);
  at::Tensor square =
      at::addcmul(at::mul(state.exp_avg_sq, options.beta2), grad, grad, 1 - options.beta2);
  at::Tensor spread = at::add(at::div(at::sqrt(square), numbers.root), options.eps);
  at::Tensor change = at::div(at::mul(average, numbers.minus_step_size), spread);
  return {at::add(decayed, change), {average, square, {}}};
}

// PyTorch calls add_ with the number -lr. A learning rate that is an input is a factor of addcmul,
// which rounds once, as add_ does.
at::Tensor Descend(const at::Tensor& param, const at::Tensor& direction, const at::Tensor& lr) {
  return at::addcmul(param, direction, lr, -1);
}

// The first step initializes the momentum buffer with the gradient, without dampening.
Updated Sgd(const at::Tensor& param, const at::Tensor& grad, const OptimizerInputs::State& state,
            const OptimizerInputs& inputs, const ForLoopNumbers& numbers,
            const OptimizerOptions& options, double decay) {
  at::Tensor direction = decay == 0 ? grad : at::add(grad, param, decay);
  if (!options.has_momentum()) return {Descend(param, direction, inputs.lr), {}};
  double momentum = options.Momentum();
  at::Tensor next =
      at::add(at::mul(state.momentum_buffer, momentum), direction, 1 - options.dampening);
  at::Tensor buffer = at::where(numbers.first, direction, next);
  direction = options.Nesterov() ? at::add(direction, buffer, momentum) : buffer;
  return {Descend(param, direction, inputs.lr), {{}, {}, buffer}};
}

// Returns the closest matrix to `direction` with orthogonal rows or columns, roughly: singular
// values move towards 1. Follows torch.optim.Muon.
at::Tensor Orthogonalized(const at::Tensor& direction, const OptimizerOptions& options) {
  const auto [a, b, c] = *options.NsCoefficients();
  bool tall = direction.size(0) > direction.size(1);
  at::Tensor x = Normalize(direction.to(at::kBFloat16), options.ns_eps);
  if (tall) x = x.t();
  for (int64_t i = 0; i < options.ns_steps; ++i) {
    at::Tensor gram = at::mm(x, x.t());
    at::Tensor polynomial = at::addmm(gram, gram, gram, b, c);
    x = at::addmm(x, polynomial, x, a, 1);
  }
  return tall ? x.t() : x;
}

Updated Muon(const at::Tensor& param, const at::Tensor& grad, const OptimizerInputs::State& state,
             const OptimizerInputs& inputs, const ForLoopNumbers& numbers,
             const OptimizerOptions& options, double decay) {
  double momentum = options.Momentum();
  at::Tensor buffer = at::lerp(state.momentum_buffer, grad, 1 - momentum);
  at::Tensor direction = options.Nesterov() ? at::lerp(grad, buffer, momentum) : buffer;
  at::Tensor decayed = decay == 0 ? param : at::mul(param, numbers.decay);
  at::Tensor lr = at::mul(inputs.lr, options.RateFactor(param.sizes()));
  return {Descend(decayed, Orthogonalized(direction, options), lr), {{}, {}, buffer}};
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
  const OptimizerOptions& optimizer = *options.optimizer;
  OptimizerInputs inputs;
  inputs.state.resize(params.size());
  for (size_t i = 0; i < params.size(); ++i) {
    if (!params[i].trainable) continue;
    auto add_state = [&](const char* label) {
      return AddStateInput(recorder, params, i, label, options.param_dtype);
    };
    OptimizerInputs::State& state = inputs.state[i];
    if (optimizer.RuleOf(params[i]) == OptimizerName::kAdamW) {
      state.exp_avg = add_state("exp_avg");
      state.exp_avg_sq = add_state("exp_avg_sq");
    } else if (optimizer.has_momentum()) {
      state.momentum_buffer = add_state("momentum_buffer");
    }
  }
  auto add = [&](const char* label, DType type, Space space) {
    Input input;
    input.role = InputRole::kHyper;
    input.label = label;
    return recorder.AddInput(std::move(input), type, {}, label, space);
  };
  bool fused = optimizer.fused();
  // The fused kernel reads an f64 from the host or an f32 from the device.
  inputs.lr = fused && options.lr_on_device
                  ? add("lr", DType::kF32, Space::kDevice)
                  : add("lr", DType::kF64, fused ? Space::kHost : Space::kDevice);
  if (optimizer.name != OptimizerName::kSgd || optimizer.has_momentum())
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
  ForLoopNumbers numbers;
  if (!options.fused()) numbers = MakeForLoopNumbers(inputs, options);
  for (size_t i = 0; i < params.size(); ++i) {
    if (!grads[i].defined()) continue;
    ScopeGuard scope(ModuleOf(specs[i].name));
    const OptimizerInputs::State& state = inputs.state[i];
    at::Tensor grad = clip.factor.defined() ? at::mul(grads[i], clip.factor) : grads[i];
    double decay = options.DecayOf(specs[i].shape.size());
    Updated updated;
    switch (options.RuleOf(specs[i])) {
      case OptimizerName::kAdamW:
        updated = options.fused() ? FusedAdamW(params[i], grad, state, inputs, options, decay)
                                  : ForLoopAdamW(params[i], grad, state, numbers, options, decay);
        break;
      case OptimizerName::kSgd:
        updated = Sgd(params[i], grad, state, inputs, numbers, options, decay);
        break;
      case OptimizerName::kMuon:
        updated = Muon(params[i], grad, state, inputs, numbers, options, decay);
        break;
    }
    RecordUpdate(recorder, graph, params[i], updated.param);
    for (auto member : {&OptimizerInputs::State::exp_avg, &OptimizerInputs::State::exp_avg_sq,
                        &OptimizerInputs::State::momentum_buffer}) {
      if ((state.*member).defined())
        RecordUpdate(recorder, graph, state.*member, updated.state.*member);
    }
  }
  return Done{};
}

}  // namespace heddle::run
