#include "heddle/run/layers/layers.h"

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/_fused_rms_norm_backward.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/div.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/logsumexp.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
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

#include "heddle/run/aten/attention_part.h"
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

// cuDNN's kernels support 16-bit types and heads of up to 128 elements.
bool HasCudnn(int64_t head_size, const StepNumerics& numerics) {
  bool narrow = numerics.compute == DType::kBF16 || numerics.compute == DType::kF16;
  return numerics.target == Target::kCuda && narrow && head_size % 8 == 0 && head_size <= 128;
}

// Flash kernels support 16-bit types on CUDA and all types on CPU.
bool HasFlash(const StepNumerics& numerics) {
  return numerics.target == Target::kCpu || numerics.compute == DType::kBF16 ||
         numerics.compute == DType::kF16;
}

at::Tensor CudnnAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          std::optional<double> scale) {
  return std::get<0>(at::_scaled_dot_product_cudnn_attention(
      query, key, value, std::nullopt, /*compute_log_sumexp=*/true, 0.0, /*is_causal=*/true,
      /*return_debug_mask=*/false, scale));
}

// Calls the flash kernel once for every document.
struct DocumentAttention : torch::autograd::Function<DocumentAttention> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& query,
                            const at::Tensor& key, const at::Tensor& value,
                            const at::Tensor& positions, std::optional<double> scale) {
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [out, logsumexp] = AttendToDocuments(query, key, value, positions, scale);
    context->save_for_backward({query, key, value, out, logsumexp, positions});
    context->saved_data["scale"] = scale;
    return out;
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    torch::autograd::variable_list saved = context->get_saved_variables();
    at::AutoDispatchBelowADInplaceOrView below_autograd;
    auto [query, key, value] =
        AttendToDocumentsBackward({grads[0], saved[0], saved[1], saved[2], saved[3], saved[4]},
                                  saved[5], context->saved_data["scale"].toOptional<double>());
    return {query, key, value, at::Tensor(), at::Tensor()};
  }
};

at::Tensor CpuAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                        std::optional<double> scale, bool causal = true,
                        const std::optional<at::Tensor>& mask = std::nullopt) {
  return std::get<0>(
      at::_scaled_dot_product_flash_attention_for_cpu(query, key, value, 0.0, causal, mask, scale));
}

// The additive mask of queries, the rows, that attend to their position and `window - 1` before it.
at::Tensor WindowMask(const at::Tensor& query, int64_t window) {
  at::Tensor none = at::full({query.size(2), query.size(2)},
                             -std::numeric_limits<double>::infinity(), query.options());
  return at::add(none.triu(1), none.tril(-window));
}

at::Tensor FlashAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          std::optional<double> scale, Target target) {
  if (target == Target::kCpu) return CpuAttention(query, key, value, scale);
  return std::get<0>(at::_scaled_dot_product_flash_attention(
      query, key, value, 0.0, /*is_causal=*/true, /*return_debug_mask=*/false, scale));
}

// A forward has all positions of the sequence, or the last.
at::Tensor CachedAttention(AttentionCache& cache, const at::Tensor& query, const at::Tensor& key,
                           const at::Tensor& value, std::optional<double> scale, int64_t window) {
  auto [keys, values] = cache.Append(key, value);
  int64_t positions = keys.size(2);
  if (query.size(2) == 1) {
    int64_t first = window > 0 ? std::max<int64_t>(0, positions - window) : 0;
    return CpuAttention(query, keys.slice(2, first), values.slice(2, first), scale,
                        /*causal=*/false);
  }
  HEDDLE_CHECK(query.size(2) == positions, "several queries continue a sequence");
  if (window == 0 || positions <= window) return CpuAttention(query, keys, values, scale);
  at::Tensor mask = WindowMask(query, window).view({1, 1, positions, positions});
  return CpuAttention(query, keys, values, scale, /*causal=*/false, mask);
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

at::Tensor Linear(const ModelWeights& weights, std::string_view name, const at::Tensor& x) {
  ScopeGuard scope(name);
  at::Tensor weight = weights("weight");
  if (!weights.Has("bias")) return Product(weights, x, weight);
  at::Tensor bias = weights("bias");
  return weights.cache() != nullptr ? RowProduct(x, weight, bias) : at::linear(x, weight, bias);
}

at::Tensor RmsNorm(const ModelWeights& weights, std::string_view name, const at::Tensor& x,
                   double eps) {
  ScopeGuard scope(name);
  at::Tensor weight = weights("weight");
  if (weights.numerics().target == Target::kCuda) return FusedRmsNorm::apply(x, weight, eps);
  return RmsNormParts(weights.numerics().norms_apart ? x.view(x.sizes()) : x, weight, eps);
}

at::Tensor FeedForward(const ModelWeights& weights, std::string_view name, const at::Tensor& x) {
  ScopeGuard scope(name);
  at::Tensor gate = at::silu(Linear(weights, "w1", x));
  return Linear(weights, "w2", at::mul(gate, Linear(weights, "w3", x)));
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

std::string_view Name(AttentionKind kind) {
  switch (kind) {
    case AttentionKind::kFastest: return "fastest";
    case AttentionKind::kCudnn: return "cudnn";
    case AttentionKind::kFlash: return "flash";
    case AttentionKind::kMath: return "math";
  }
  return "";
}

AttentionKind FastestAttention(int64_t head_size, const StepNumerics& numerics) {
  bool cudnn = !numerics.deterministic && !numerics.splits_queries;
  if (cudnn && HasCudnn(head_size, numerics)) return AttentionKind::kCudnn;
  return HasFlash(numerics) ? AttentionKind::kFlash : AttentionKind::kMath;
}

at::Tensor Attend(const ModelWeights& weights, const at::Tensor& query, const at::Tensor& key,
                  const at::Tensor& value, std::optional<double> scale, int64_t window) {
  const StepNumerics& numerics = weights.numerics();
  AttentionKind kind = numerics.attention;
  if (kind == AttentionKind::kFastest) kind = FastestAttention(query.size(3), numerics);
  bool cached = weights.cache() != nullptr;
  if (kind == AttentionKind::kMath && !cached) {
    bool grouped = query.size(1) != key.size(1);
    std::optional<at::Tensor> mask;
    if (window > 0 && query.size(2) > window) mask = WindowMask(query, window);
    return std::get<0>(at::_scaled_dot_product_attention_math(
        query, key, value, mask, 0.0, /*is_causal=*/!mask, std::nullopt, scale, grouped));
  }
  auto fused = [&](const at::Tensor& values) {
    if (cached) return CachedAttention(*weights.cache(), query, key, values, scale, window);
    at::Tensor documents = weights.documents();
    if (weights.attention()) return weights.attention()({query, key, values, documents, scale});
    if (documents.defined()) return DocumentAttention::apply(query, key, values, documents, scale);
    return kind == AttentionKind::kCudnn
               ? CudnnAttention(query, key, values, scale)
               : FlashAttention(query, key, values, scale, numerics.target);
  };
  int64_t size = value.size(3);
  if (size == query.size(3)) return fused(value);
  // The kernels require values as wide as queries. Columns of zeros do not change the other
  // columns.
  at::Tensor padded = at::constant_pad_nd(value, {0, query.size(3) - size});
  return fused(padded).slice(-1, 0, size);
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
