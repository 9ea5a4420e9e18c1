// The pieces of models: plain functions over named weights. The same code runs traced and eagerly, on CPU and CUDA.
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

namespace heddle::run {

// Fused kernels, or attention composed of matmuls and a softmax. FastestAttention resolves kFastest.
enum class AttentionKind : uint8_t { kFastest, kCudnn, kFlash, kMath };
std::string_view Name(AttentionKind kind);
// Which kernels a step is meant for. Traced tensors have no device of their own to ask.
enum class Target : uint8_t { kCpu, kCuda };

// What the summed loss is divided by: the tokens whose label counts, of all ranks, which the step counts itself; all tokens, a
// constant; or a number that is given, where a step has several batches. The first two are the same where no label is
// kIgnoredLabel.
enum class LossDivisor : uint8_t { kValidTokens, kAllTokens, kGiven };

// What a step computes with.
struct StepNumerics {
  // Weights are cast to it at every read; the gradient is cast back.
  DType compute = DType::kF32;
  AttentionKind attention = AttentionKind::kFastest;
  Target target = Target::kCpu;
  // Only kernels that give the same bits in every run.
  bool deterministic = false;
  LossDivisor loss_divisor = LossDivisor::kValidTokens;
  // The gradients of a norm's own uses of its input add up before those of others do. DTensor does that where norms are
  // sequence-parallel; in f32 the bits depend on it.
  bool norms_apart = false;
  // The square of the logarithm of each token's normaliser, times this, is added to the loss: it keeps scores from drifting.
  double z_loss = 0;
  // How unevenly each sequence uses the experts, times this, is added to the loss.
  double aux_loss = 0;
};

// A metric of a mixture of experts, behind the name of its block: how many tokens chose each expert.
inline constexpr std::string_view kExpertCounts = ".tokens_per_expert";

// The products of experts with rows that stand by expert; `ends` says where the rows of each end.
using ExpertProducts = std::function<at::Tensor(const at::Tensor& rows, const at::Tensor& ends)>;
// Has experts work on rows that stand by expert, so many for each, wherever these experts are.
using ExpertSpread = std::function<at::Tensor(const at::Tensor& rows, const at::Tensor& counts,
                                              const ExpertProducts& products)>;

// Weights and buffers by their full names.
class ModelWeights {
 public:
  ModelWeights(std::span<const ParamSpec> specs, std::span<const at::Tensor> params,
               std::span<const StepInput> inputs, std::span<const at::Tensor> input_tensors,
               const StepNumerics& numerics);

  // The weight `name` of the current scope, in the compute type. It is cast once in a step: gradients of several uses add up in the
  // compute type, as they do in FSDP2.
  at::Tensor operator()(std::string_view name) const;
  // Notes what the step saw that changes a buffer.
  void Changes(std::string_view buffer, const at::Tensor& seen) const;
  std::vector<BufferChange> TakeChanges() const { return std::move(changes_); }
  // Notes what is worth knowing of the step.
  void Measures(std::string name, const at::Tensor& value) const {
    metrics_.push_back({std::move(name), value});
  }
  std::vector<StepMetric> TakeMetrics() const { return std::move(metrics_); }
  // What layers add to the summed loss.
  void AddToLoss(const at::Tensor& term) const { loss_terms_.push_back(term); }
  at::Tensor WithLossTerms(at::Tensor loss) const;
  // A buffer, as it is.
  at::Tensor Buffer(std::string_view full_name) const;
  const StepNumerics& numerics() const { return numerics_; }
  // Where not all experts are here. Without it, they are.
  void SpreadExperts(ExpertSpread spread) { spread_ = std::move(spread); }
  const ExpertSpread& spread() const { return spread_; }

 private:
  std::unordered_map<std::string, at::Tensor> tensors_;
  mutable std::unordered_map<std::string, at::Tensor> cast_;
  // Places among the inputs.
  std::unordered_map<std::string, size_t> inputs_;
  mutable std::vector<BufferChange> changes_;
  mutable std::vector<at::Tensor> loss_terms_;
  mutable std::vector<StepMetric> metrics_;
  StepNumerics numerics_;
  ExpertSpread spread_;
};

// In f32, or f64 if it is that already.
at::Tensor Widened(const at::Tensor& x);
// x W^T with the weight of module `name`.
at::Tensor Linear(const ModelWeights& weights, std::string_view name, const at::Tensor& x);
at::Tensor RmsNorm(const ModelWeights& weights, std::string_view name, const at::Tensor& x,
                   double eps);
// w2(silu(w1(x)) * w3(x)), in module `name`.
at::Tensor FeedForward(const ModelWeights& weights, std::string_view name, const at::Tensor& x);
// Rotates adjacent pairs of the last dimension, as complex numbers in f32. x is [batch, positions, heads, size].
at::Tensor RotatePairs(const at::Tensor& x, const at::Tensor& rotations);
// Rotates the first half of the last dimension against the second.
at::Tensor RotateHalves(const at::Tensor& x, const at::Tensor& cosines, const at::Tensor& sines);
// The fastest kernel for heads of `head_size` elements: the first of cuDNN, flash and math that supports the device and the compute
// type. cuDNN's backward adds to dQ in any order, so deterministic steps do not use it.
AttentionKind FastestAttention(int64_t head_size, const StepNumerics& numerics);
// Causal attention. Query is [batch, heads, positions, size]; keys and values may have fewer heads.
at::Tensor Attend(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                  std::optional<double> scale, const StepNumerics& numerics);
// Cross entropy in f32, and `z_loss` times the squares of log normalisers, summed over the tokens that count. Logits are
// [batch, positions, vocabulary].
at::Tensor SummedLoss(const at::Tensor& logits, const at::Tensor& labels, double z_loss = 0);
// `count` is what it is divided by, where that is given.
at::Tensor DividedLoss(const at::Tensor& sum, const at::Tensor& labels, LossDivisor divisor,
                       const at::Tensor& count);

// Rotations of position p by frequency f, [positions, size / 2]: for RotatePairs as complex numbers.
at::Tensor RopeFrequencies(int64_t size, double theta);
at::Tensor RopeAngles(const at::Tensor& frequencies, int64_t positions);

}  // namespace heddle::run
