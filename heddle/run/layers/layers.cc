#include "heddle/run/layers/layers.h"

#include <cmath>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/div.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/native_layer_norm.h>
#include <ATen/ops/ne.h>
#include <ATen/ops/outer.h>
#include <ATen/ops/pow.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/view_as_real.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "heddle/run/aten/dtype.h"
#include "heddle/run/capture/scope.h"
#include "heddle/run/layers/row_product.h"

namespace heddle::run {
namespace {

using RmsNormFunction = std::tuple<at::Tensor, at::Tensor>(const at::Tensor&, c10::IntArrayRef,
                                                           const std::optional<at::Tensor>&,
                                                           std::optional<double>);

std::tuple<at::Tensor, at::Tensor> RunFusedRmsNorm(const at::Tensor& x, c10::IntArrayRef shape,
                                                   const std::optional<at::Tensor>& weight,
                                                   std::optional<double> eps) {
  return at::_fused_rms_norm(x, shape, weight, eps);
}

// The kernel under our own name. A libtorch without CUDA has only a composite implementation of the
// op, and tracing would record its parts.
TORCH_LIBRARY_FRAGMENT(heddle, library) {
  library.def(
      "_fused_rms_norm(Tensor input, int[] normalized_shape, Tensor? weight, float? eps) -> "
      "(Tensor, Tensor)");
}
TORCH_LIBRARY_IMPL(heddle, CPU, library) { library.impl("_fused_rms_norm", RunFusedRmsNorm); }
TORCH_LIBRARY_IMPL(heddle, CUDA, library) { library.impl("_fused_rms_norm", RunFusedRmsNorm); }

// On CUDA, rms_norm is one kernel. A libtorch without CUDA lacks its autograd formula, too.
struct FusedRmsNorm : torch::autograd::Function<FusedRmsNorm> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, double eps) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    static const auto op = c10::Dispatcher::singleton()
                               .findSchemaOrThrow("heddle::_fused_rms_norm", "")
                               .typed<RmsNormFunction>();
    auto [out, rstd] = op.call(x, {x.size(-1)}, weight, eps);
    context->save_for_backward({x, weight, rstd});
    return out;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    torch::autograd::variable_list saved = context->get_saved_variables();
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [dx, dw] = at::_fused_rms_norm_backward(grads[0], saved[0], {saved[0].size(-1)}, saved[2],
                                                 saved[1], {true, true});
    return {dx, dw, at::Tensor()};
  }
};

// libtorch's derivative of rsqrt is one expression whose operands different compilers evaluate in
// different orders. Separate statements make the graph independent of the build.
struct Rsqrt : torch::autograd::Function<Rsqrt> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    at::Tensor out = at::rsqrt(x);
    context->save_for_backward({out});
    return out;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    at::Tensor out = context->get_saved_variables()[0];
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    at::Tensor cube = at::pow(out, 3);
    return {at::mul(at::mul(grads[0], -0.5), cube)};
  }
};

// The parts of rms_norm on CPU. They are explicit because a libtorch with CUDA would record a
// traced rms_norm as one op. The oracle test compares them with the op.
at::Tensor RmsNormParts(const at::Tensor& x, const at::Tensor& weight, double eps) {
  at::Tensor wide = Widened(x);
  double rounded =
      wide.scalar_type() == at::kDouble ? eps : static_cast<double>(static_cast<float>(eps));
  at::Tensor squares = at::mean(at::pow(wide, 2), {x.dim() - 1}, /*keepdim=*/true);
  at::Tensor scale = Rsqrt::apply(at::add(squares, rounded));
  return at::mul(at::mul(wide, scale), weight).to(x.scalar_type());
}

// The input of a norm, as a tensor of its own if the norm's gradients are summed apart.
at::Tensor AloneForNorm(const ModelWeights& weights, const at::Tensor& x) {
  bool apart = weights.numerics().norms_apart && weights.numerics().target == Target::kCpu;
  return apart ? x.view(x.sizes()) : x;
}

at::Tensor Normalized(const ModelWeights& weights, const at::Tensor& x, const at::Tensor& weight,
                      double eps) {
  if (weights.numerics().target == Target::kCuda) return FusedRmsNorm::apply(x, weight, eps);
  return RmsNormParts(AloneForNorm(weights, x), weight, eps);
}

}  // namespace

ModelWeights::ModelWeights(std::span<const ParamSpec> specs, std::span<const at::Tensor> params,
                           std::span<const StepInput> inputs,
                           std::span<const at::Tensor> input_tensors, const StepNumerics& numerics)
    : numerics_(numerics) {
  for (size_t i = 0; i < specs.size(); ++i) tensors_.emplace(specs[i].name, params[i]);
  for (size_t i = 0; i < inputs.size(); ++i) {
    tensors_.emplace(inputs[i].name, input_tensors[i]);
    inputs_.emplace(inputs[i].name, i);
  }
}

std::string ModelWeights::FullName(std::string_view name) {
  std::string full(CurrentScope());
  full += '.';
  full += name;
  return full;
}

at::Tensor ModelWeights::operator()(std::string_view name) const {
  std::string full = FullName(name);
  auto at = tensors_.find(full);
  HEDDLE_CHECK(at != tensors_.end(), "the model has no weight " + full);
  auto [cast, first] = cast_.try_emplace(full);
  if (first) cast->second = at->second.to(ToScalarType(numerics_.compute));
  return cast->second;
}

at::Tensor ModelWeights::Buffer(std::string_view full_name) const {
  auto at = tensors_.find(std::string(full_name));
  HEDDLE_CHECK(at != tensors_.end(), "the model has no buffer " + std::string(full_name));
  return at->second;
}

at::Tensor ModelWeights::WithLossTerms(at::Tensor loss) const {
  for (const at::Tensor& term : loss_terms_) loss = at::add(loss, term);
  return loss;
}

at::Tensor ModelWeights::documents() const {
  auto at = tensors_.find(std::string(kDocumentPositions));
  return at == tensors_.end() ? at::Tensor() : at->second;
}

at::Tensor ModelWeights::Rotations(std::string_view table) const {
  at::Tensor rows = Buffer(table);
  if (cache() != nullptr) return cache()->Rows(rows);
  return documents().defined() ? at::embedding(rows, documents()) : rows;
}

at::Tensor ModelWeights::Positions(std::string_view buffer) const {
  if (documents().defined()) return documents();
  return cache() != nullptr ? cache()->Rows(Buffer(buffer)) : Buffer(buffer);
}

void ModelWeights::Changes(std::string_view buffer, const at::Tensor& seen) const {
  auto at = inputs_.find(std::string(buffer));
  HEDDLE_CHECK(at != inputs_.end(), "the model has no buffer " + std::string(buffer));
  changes_.push_back({at->second, seen});
}

at::Tensor Widened(const at::Tensor& x) {
  return x.scalar_type() == at::kDouble ? x : x.to(at::kFloat);
}

at::Tensor Product(const ModelWeights& weights, const at::Tensor& x, const at::Tensor& weight) {
  return weights.cache() != nullptr ? RowProduct(x, weight) : at::linear(x, weight);
}

namespace {

// The linear layer of the current scope.
at::Tensor OwnLinear(const ModelWeights& weights, const at::Tensor& x) {
  at::Tensor weight = weights("weight");
  if (!weights.Has("bias")) return Product(weights, x, weight);
  at::Tensor bias = weights("bias");
  if (weights.cache() != nullptr) return RowProduct(x, weight, bias);
  at::Tensor out = at::linear(x, weight, bias);
  // The gradient of the bias is a sum over rows, whose order depends on how they are stored.
  // Without this, that depends on the number of sequences.
  if (out.requires_grad())
    out.register_hook([](const at::Tensor& grad) { return grad.contiguous(); });
  return out;
}

}  // namespace

at::Tensor Linear(const ModelWeights& weights, std::string_view name, const at::Tensor& x) {
  ScopeGuard scope(name);
  at::Tensor out = OwnLinear(weights, x);
  if (!weights.Has("lora_a")) return out;
  at::Tensor narrow = Product(weights, x, weights("lora_a"));
  at::Tensor change = Product(weights, narrow, weights("lora_b"));
  return at::add(out, at::mul(change, weights.numerics().adapter_scale));
}

at::Tensor RmsNorm(const ModelWeights& weights, std::string_view name, const at::Tensor& x,
                   double eps) {
  ScopeGuard scope(name);
  return Normalized(weights, x, weights("weight"), eps);
}

at::Tensor OffsetRmsNorm(const ModelWeights& weights, std::string_view name, const at::Tensor& x,
                         double eps) {
  ScopeGuard scope(name);
  at::Tensor weight = at::add(Widened(weights("weight")), 1.0);
  if (weights.numerics().target == Target::kCpu) return Normalized(weights, x, weight, eps);
  // The fused kernel needs one type.
  return Normalized(weights, Widened(x), weight, eps).to(x.scalar_type());
}

at::Tensor LayerNorm(const ModelWeights& weights, std::string_view name, const at::Tensor& x,
                     double eps) {
  ScopeGuard scope(name);
  at::Tensor weight = weights("weight");
  at::Tensor bias = weights("bias");
  return std::get<0>(
      at::native_layer_norm(AloneForNorm(weights, x), {x.size(-1)}, weight, bias, eps));
}

at::Tensor WithBias(const ModelWeights& weights, std::string_view name, const at::Tensor& x) {
  ScopeGuard scope(name);
  return weights.Has("bias") ? at::add(x, weights("bias")) : x;
}

at::Tensor FeedForward(const ModelWeights& weights, std::string_view name, const at::Tensor& x) {
  ScopeGuard scope(name);
  at::Tensor gate = at::silu(Linear(weights, "w1", x));
  return Linear(weights, "w2", at::mul(gate, Linear(weights, "w3", x)));
}

at::Tensor GatedGelu(const ModelWeights& weights, std::string_view name, const at::Tensor& x) {
  ScopeGuard scope(name);
  at::Tensor gate = at::gelu(Linear(weights, "w1", x), "tanh");
  return Linear(weights, "w2", at::mul(gate, Linear(weights, "w3", x)));
}

at::Tensor PlainGelu(const ModelWeights& weights, std::string_view name, const at::Tensor& x) {
  ScopeGuard scope(name);
  return Linear(weights, "w2", at::gelu(Linear(weights, "w1", x), "tanh"));
}

namespace {

// Adds a dimension of one for the heads.
at::Tensor ForAllHeads(const at::Tensor& rotations) {
  int64_t rows = rotations.dim() == 3 ? rotations.size(0) : 1;
  return rotations.view({rows, rotations.size(-2), 1, -1});
}

}  // namespace

at::Tensor RotatePairs(const at::Tensor& x, const at::Tensor& rotations) {
  std::vector<int64_t> pairs(x.sizes().begin(), x.sizes().end());
  pairs.back() /= 2;
  pairs.push_back(2);
  // One call per statement: C++ does not specify the evaluation order of arguments, and a graph
  // must not depend on the compiler.
  at::Tensor complex = at::view_as_complex(Widened(x).reshape(pairs));
  at::Tensor turned = at::mul(complex, ForAllHeads(rotations));
  return at::view_as_real(turned).flatten(-2).to(x.scalar_type());
}

at::Tensor RotateHalves(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines) {
  int64_t half = x.size(-1) / 2;
  at::Tensor low = x.slice(-1, 0, half);
  at::Tensor high = x.slice(-1, half);
  at::Tensor turned = at::cat({high.neg(), low}, -1);
  at::Tensor along = at::mul(x, ForAllHeads(cosines.to(x.scalar_type())));
  at::Tensor across = at::mul(turned, ForAllHeads(sines.to(x.scalar_type())));
  return at::add(along, across);
}

at::Tensor SummedLoss(const at::Tensor& logits, const at::Tensor& labels, double z_loss) {
  ScopeGuard scope("loss");
  at::Tensor scores = Widened(logits).flatten(0, 1);
  at::Tensor targets = labels.flatten();
  at::Tensor loss =
      at::cross_entropy_loss(scores, targets, std::nullopt, at::Reduction::Sum, kIgnoredLabel);
  if (z_loss == 0) return loss;
  at::Tensor squares = at::pow(at::logsumexp(scores, {1}), 2);
  at::Tensor counted = at::mul(squares, at::ne(targets, kIgnoredLabel));
  return at::add(loss, at::mul(at::sum(counted), z_loss));
}

at::Tensor DividedLoss(const at::Tensor& sum, const at::Tensor& labels, LossDivisor divisor,
                       const at::Tensor& count) {
  ScopeGuard scope("loss");
  if (divisor == LossDivisor::kGiven) return at::div(sum, count);
  if (divisor == LossDivisor::kAllTokens) return at::div(sum, static_cast<double>(labels.numel()));
  return at::div(sum, at::sum(at::ne(labels, kIgnoredLabel)));
}

at::Tensor RopeFrequencies(int64_t size, double theta) {
  at::Tensor exponents = at::arange(0, size, 2).slice(0, 0, size / 2).to(at::kFloat) / size;
  return at::reciprocal(at::pow(theta, exponents)) * 1.0;
}

at::Tensor RopeAngles(const at::Tensor& frequencies, int64_t positions) {
  return at::outer(at::arange(positions), frequencies).to(at::kFloat);
}

}  // namespace heddle::run
