// The layers of models: functions over named weights. The same code runs traced and eagerly, on CPU
// and CUDA.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/run/capture/capture.h"
#include "heddle/run/data/dataset.h"
#include "heddle/run/layers/attention_cache.h"

namespace heddle::run {

// Fused kernels, or attention composed of matmuls and a softmax. FastestAttention resolves
// kFastest.
enum class AttentionKind : uint8_t { kFastest, kCudnn, kFlash, kMath };
std::string_view Name(AttentionKind kind);
// The device type that a step is compiled for. Traced tensors have no device to ask.
enum class Target : uint8_t { kCpu, kCuda };

// The divisor of the summed loss:
//
// - kValidTokens: the number of tokens over all ranks whose label counts. The step computes it.
// - kAllTokens: the number of all tokens, a constant.
// - kGiven: an input, for steps with several micro-batches.
//
// The first two are equal if no label is kIgnoredLabel.
enum class LossDivisor : uint8_t { kValidTokens, kAllTokens, kGiven };

// Numeric settings of a step.
struct StepNumerics {
  // Weights are cast to this type once per step; gradients are cast back.
  DType compute = DType::kF32;
  AttentionKind attention = AttentionKind::kFastest;
  Target target = Target::kCpu;
  // Uses only kernels that give the same bits in every run.
  bool deterministic = false;
  // Uses only kernels of attention whose queries can be split by position.
  bool splits_queries = false;
  LossDivisor loss_divisor = LossDivisor::kValidTokens;
  // Sums the gradients of a norm's own uses of its input before the gradients of other uses.
  // DTensor sums in this order where norms are sequence-parallel. In f32 the bits depend on it.
  bool norms_apart = false;
  // Factor of the z-loss: the squared log-normalizer of each token's logits. It keeps logits from
  // drifting.
  double z_loss = 0;
  // Factor of the auxiliary loss: how unevenly each sequence uses the experts.
  double aux_loss = 0;
  // Factor of the products of adapters (LoraConfig).
  double adapter_scale = 1;
};

// Suffix of a metric, after the name of the block: number of tokens for each expert.
inline constexpr std::string_view kExpertCounts = ".tokens_per_expert";

// Applies experts to rows that are sorted by expert. `ends` contains the end of each expert's rows.
using ExpertProducts = std::function<at::Tensor(const at::Tensor& rows, const at::Tensor& ends)>;
// Runs experts on rows that are sorted by expert, `counts` for each. The experts may be on other
// ranks.
using ExpertSpread = std::function<at::Tensor(const at::Tensor& rows, const at::Tensor& counts,
                                              const ExpertProducts& products)>;

// The input with the place of each position in its document, i64[batch, positions].
inline constexpr std::string_view kDocumentPositions = "positions";

// The operands of attention.
struct AttentionInputs {
  at::Tensor query;
  at::Tensor key;
  at::Tensor value;
  // The places of queries in their documents; undefined if a row is one document.
  at::Tensor documents;
  std::optional<double> scale;
};
// A fused kernel for causal attention. The rank may have a part of the positions.
using FusedAttention = std::function<at::Tensor(const AttentionInputs& inputs)>;

// Gathers latents, [batch, positions, ...], over ranks with different positions.
using LatentGather = std::function<at::Tensor(const at::Tensor& latents)>;

// Weights and buffers by their full names.
class ModelWeights {
 public:
  ModelWeights(std::span<const ParamSpec> specs, std::span<const at::Tensor> params,
               std::span<const StepInput> inputs, std::span<const at::Tensor> input_tensors,
               const StepNumerics& numerics);

  // Returns the weight `name` of the current scope in the compute type. A weight is cast once per
  // step, so gradients of several uses are summed in the compute type, as in FSDP2.
  at::Tensor operator()(std::string_view name) const;
  // Whether the current scope has a weight `name`.
  bool Has(std::string_view name) const { return tensors_.contains(FullName(name)); }
  // Records a change of a buffer (BufferChange).
  void Changes(std::string_view buffer, const at::Tensor& seen) const;
  std::vector<BufferChange> TakeChanges() const { return std::move(changes_); }
  // Records a metric of the step.
  void Measures(std::string name, const at::Tensor& value) const {
    metrics_.push_back({std::move(name), value});
  }
  std::vector<StepMetric> TakeMetrics() const { return std::move(metrics_); }
  // Adds a term to the summed loss.
  void AddToLoss(const at::Tensor& term) const { loss_terms_.push_back(term); }
  at::Tensor WithLossTerms(at::Tensor loss) const;
  // Returns a buffer without a cast.
  at::Tensor Buffer(std::string_view full_name) const;
  // Returns kDocumentPositions; undefined if a row is one document.
  at::Tensor documents() const;
  // Returns the rows of a rotation table for the positions: [positions, size], or [batch,
  // positions, size] with documents.
  at::Tensor Rotations(std::string_view table) const;
  // Returns the positions themselves, [positions] or [batch, positions]. The buffer contains those
  // of a sequence.
  at::Tensor Positions(std::string_view buffer) const;
  const StepNumerics& numerics() const { return numerics_; }
  // Sets the cache whose sequences the tokens continue. By default, tokens are whole sequences.
  void Continue(AttentionCache* cache) { cache_ = cache; }
  AttentionCache* cache() const { return cache_; }
  // Sets how rows reach experts on other ranks. By default, all experts are local.
  void SpreadExperts(ExpertSpread spread) { spread_ = std::move(spread); }
  const ExpertSpread& spread() const { return spread_; }
  // Replaces the kernels of attention. By default, all positions are local.
  void ReplaceAttention(FusedAttention attention) { attention_ = std::move(attention); }
  const FusedAttention& attention() const { return attention_; }
  // Sets how ranks with different positions get the latents of all positions. By default, all
  // positions are local.
  void GatherLatents(LatentGather gather) { gather_ = std::move(gather); }
  at::Tensor Gathered(const at::Tensor& latents) const {
    return gather_ ? gather_(latents) : latents;
  }

 private:
  static std::string FullName(std::string_view name);

  std::unordered_map<std::string, at::Tensor> tensors_;
  mutable std::unordered_map<std::string, at::Tensor> cast_;
  // Positions among the inputs.
  std::unordered_map<std::string, size_t> inputs_;
  mutable std::vector<BufferChange> changes_;
  mutable std::vector<at::Tensor> loss_terms_;
  mutable std::vector<StepMetric> metrics_;
  StepNumerics numerics_;
  ExpertSpread spread_;
  FusedAttention attention_;
  LatentGather gather_;
  AttentionCache* cache_ = nullptr;
};

// Casts to f32, unless the tensor is f64.
at::Tensor Widened(const at::Tensor& x);
// Returns x W^T.
at::Tensor Product(const ModelWeights& weights, const at::Tensor& x, const at::Tensor& weight);
// Returns x W^T with the weight of module `name`, plus its bias if it has one.
at::Tensor Linear(const ModelWeights& weights, std::string_view name, const at::Tensor& x);
at::Tensor RmsNorm(const ModelWeights& weights, std::string_view name, const at::Tensor& x,
                   double eps);
// Like RmsNorm, but multiplies by 1 plus the weight, in f32.
at::Tensor OffsetRmsNorm(const ModelWeights& weights, std::string_view name, const at::Tensor& x,
                         double eps);
// Subtracts means, too, and adds a bias.
at::Tensor LayerNorm(const ModelWeights& weights, std::string_view name, const at::Tensor& x,
                     double eps);
// Adds the bias of module `name`, if it has one.
at::Tensor WithBias(const ModelWeights& weights, std::string_view name, const at::Tensor& x);
// Feed-forward networks in module `name`: w2(silu(w1(x)) * w3(x)), w2(gelu(w1(x)) * w3(x)), and
// w2(gelu(w1(x))). GELU is approximated with tanh.
at::Tensor FeedForward(const ModelWeights& weights, std::string_view name, const at::Tensor& x);
at::Tensor GatedGelu(const ModelWeights& weights, std::string_view name, const at::Tensor& x);
at::Tensor PlainGelu(const ModelWeights& weights, std::string_view name, const at::Tensor& x);
// Rotates adjacent pairs of the last dimension, as complex numbers in f32. `x` is [batch,
// positions, heads, size].
at::Tensor RotatePairs(const at::Tensor& x, const at::Tensor& rotations);
// Rotates the first half of the last dimension with the second.
at::Tensor RotateHalves(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines);
// Returns the cross entropy in f32 plus `z_loss` times the squared log-normalizers, summed over the
// tokens whose label counts. `logits` is [batch, positions, vocabulary].
at::Tensor SummedLoss(const at::Tensor& logits, const at::Tensor& labels, double z_loss = 0);
// Divides the summed loss. `count` is the divisor for kGiven.
at::Tensor DividedLoss(const at::Tensor& sum, const at::Tensor& labels, LossDivisor divisor,
                       const at::Tensor& count);

// RopeFrequencies returns the frequencies of `size / 2` pairs. RopeAngles returns the angles
// [positions, size / 2], for RotatePairs as complex numbers.
at::Tensor RopeFrequencies(int64_t size, double theta);
at::Tensor RopeAngles(const at::Tensor& frequencies, int64_t positions);

}  // namespace heddle::run
