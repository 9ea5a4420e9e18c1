#include "heddle/run/layers/attention.h"

#include <cmath>
#include <limits>

#include <ATen/TensorOperators.h>
#include <ATen/ops/_scaled_dot_product_attention_math.h>
#include <ATen/ops/_scaled_dot_product_cudnn_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/div.h>
#include <ATen/ops/full.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/repeat_interleave.h>
#include <ATen/ops/softmax.h>
#include <ATen/ops/tanh.h>
#include <torch/csrc/autograd/custom_function.h>

#include "heddle/run/aten/attention_part.h"

namespace heddle::run {
namespace {

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

// The additive mask of queries, the rows, that attend to their position and `window - 1` before it
// (0: to all before it).
at::Tensor CausalMask(const at::Tensor& query, int64_t window) {
  at::Tensor none = at::full({query.size(2), query.size(2)},
                             -std::numeric_limits<double>::infinity(), query.options());
  if (window == 0 || query.size(2) <= window) return none.triu(1);
  return at::add(none.triu(1), none.tril(-window));
}

at::Tensor FlashAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                          std::optional<double> scale, Target target) {
  if (target == Target::kCpu) return CpuAttention(query, key, value, scale);
  return std::get<0>(at::_scaled_dot_product_flash_attention(
      query, key, value, 0.0, /*is_causal=*/true, /*return_debug_mask=*/false, scale));
}

bool IsComposed(const AttentionOptions& options) {
  return options.softcap > 0 || options.sinks.defined();
}

// Attention composed of ops, with a softcap and sinks. The softmax is in f32.
at::Tensor ComposedAttention(const at::Tensor& query, const at::Tensor& key,
                             const at::Tensor& value, const AttentionOptions& options,
                             const std::optional<at::Tensor>& mask) {
  int64_t times = query.size(1) / key.size(1);
  at::Tensor keys = times > 1 ? at::repeat_interleave(key, times, 1) : key;
  at::Tensor values = times > 1 ? at::repeat_interleave(value, times, 1) : value;
  double scale = options.scale.value_or(1.0 / std::sqrt(static_cast<double>(query.size(3))));
  at::Tensor scores = at::mul(at::matmul(query, keys.transpose(2, 3)), scale);
  if (options.softcap > 0) scores = Softcap(scores, options.softcap);
  if (mask) scores = at::add(scores, *mask);
  scores = Widened(scores);
  if (options.sinks.defined()) {
    at::Tensor sinks = Widened(options.sinks).view({1, -1, 1, 1});
    sinks = sinks.expand({scores.size(0), scores.size(1), scores.size(2), 1});
    scores = at::cat({scores, sinks}, 3);
  }
  at::Tensor shares = at::softmax(scores, -1);
  if (options.sinks.defined()) shares = shares.slice(3, 0, keys.size(2));
  return at::matmul(shares.to(values.scalar_type()), values);
}

at::Tensor MathAttention(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                         const AttentionOptions& options) {
  if (IsComposed(options))
    return ComposedAttention(query, key, value, options, CausalMask(query, options.window));
  std::optional<at::Tensor> mask;
  if (options.window > 0 && query.size(2) > options.window)
    mask = CausalMask(query, options.window);
  return std::get<0>(at::_scaled_dot_product_attention_math(
      query, key, value, mask, 0.0, /*is_causal=*/!mask, std::nullopt, options.scale,
      /*enable_gqa=*/query.size(1) != key.size(1)));
}

// A forward has all positions of the sequence, or the last.
at::Tensor CachedAttention(AttentionCache& cache, const at::Tensor& query, const at::Tensor& key,
                           const at::Tensor& value, const AttentionOptions& options) {
  auto [keys, values] = cache.Append(key, value);
  int64_t positions = keys.size(2);
  int64_t window = options.window;
  if (query.size(2) == 1) {
    int64_t first = window > 0 ? std::max<int64_t>(0, positions - window) : 0;
    keys = keys.slice(2, first);
    values = values.slice(2, first);
    if (IsComposed(options)) return ComposedAttention(query, keys, values, options, std::nullopt);
    return CpuAttention(query, keys, values, options.scale, /*causal=*/false);
  }
  HEDDLE_CHECK(query.size(2) == positions, "several queries continue a sequence");
  if (IsComposed(options))
    return ComposedAttention(query, keys, values, options, CausalMask(query, window));
  if (window == 0 || positions <= window) return CpuAttention(query, keys, values, options.scale);
  at::Tensor mask = CausalMask(query, window).view({1, 1, positions, positions});
  return CpuAttention(query, keys, values, options.scale, /*causal=*/false, mask);
}

}  // namespace

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

at::Tensor Softcap(const at::Tensor& x, double cap) {
  return at::mul(at::tanh(at::div(x, cap)), cap);
}

at::Tensor Attend(const ModelWeights& weights, const at::Tensor& query, const at::Tensor& key,
                  const at::Tensor& value, const AttentionOptions& options) {
  const StepNumerics& numerics = weights.numerics();
  AttentionKind kind = numerics.attention;
  if (kind == AttentionKind::kFastest) kind = FastestAttention(query.size(3), numerics);
  bool cached = weights.cache() != nullptr;
  if (kind == AttentionKind::kMath && !cached) return MathAttention(query, key, value, options);
  HEDDLE_CHECK(cached || !IsComposed(options), "fused kernels support neither softcap nor sinks");
  std::optional<double> scale = options.scale;
  auto fused = [&](const at::Tensor& values) {
    if (cached) return CachedAttention(*weights.cache(), query, key, values, options);
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

}  // namespace heddle::run
