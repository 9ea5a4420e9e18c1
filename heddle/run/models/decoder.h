// Parts that the families of decoders share: parameters, the order of layers, and rules for
// presets.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/run/models/family.h"

namespace heddle::run {

// Returns a config with these sizes; everything else has the defaults of ModelConfig.
ModelConfig DecoderConfig(std::string flavor, int64_t dim, int64_t layers, int64_t heads,
                          int64_t kv_heads, int64_t ffn, int64_t vocab);

// Collects parameters in registration order.
class ParamList {
 public:
  void Add(const std::string& name, std::vector<int64_t> shape, const std::string& unit) {
    params_.push_back({name, std::move(shape), unit});
  }
  std::vector<ParamSpec> Take() { return std::move(params_); }

 private:
  std::vector<ParamSpec> params_;
};

// Names of FSDP units: one for each block, one for the embedding, and one for the final norm and
// the output. With tied weights, the last two are one unit.
std::string BlockUnit(int64_t layer);
std::string EmbeddingUnit(const ModelConfig& config);
std::string OutputUnit(const ModelConfig& config);

void AddEmbedding(ParamList& params, const ModelConfig& config);
// Adds wq, wk, wv and wo of grouped-query attention, in module `attention`.
void AddAttention(ParamList& params, const ModelConfig& config, const std::string& unit);
// Adds biases of wq, wk and wv, too.
void AddBiasedAttention(ParamList& params, const ModelConfig& config, const std::string& unit);
void AddFeedForward(ParamList& params, const std::string& prefix, int64_t dim, int64_t hidden,
                    const std::string& unit);

// Describes how a family registers the parameters of a block.
struct BlockParams {
  void (*add_attention)(ParamList& params, const ModelConfig& config, const std::string& unit);
  // The norms of a block come before its feed-forward network, not after it.
  bool norms_first = false;
};
// Returns embedding, blocks, norm and output. A block adds attention to the residual stream, and
// then a feed-forward network or experts, each with a norm before it (or after it:
// Family::norms_after).
FamilyParts DecoderParts(const ModelConfig& config, std::vector<StepInput> buffers,
                         const BlockParams& block);

// Returns part(norm(x)), or norm(part(x)) if the family's norms follow.
at::Tensor Normed(const ModelWeights& weights, const ModelConfig& config, std::string_view norm,
                  const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& part);

// Applies rotary embedding to queries or keys [batch, positions, heads, size], after the norm of
// this name if the family has one.
using RotateHeads = std::function<at::Tensor(const at::Tensor& heads, std::string_view norm)>;
// Computes attention with the parameters of AddAttention.
at::Tensor GroupedQueryAttention(const ModelWeights& weights, const ModelConfig& config,
                                 const at::Tensor& x, const RotateHeads& rotate);

// The buffers `rope_cos` and `rope_sin` of families that rotate halves of heads.
std::vector<StepInput> HalfRotations(const ModelConfig& config, const BatchConfig& batch);

// Adds the mixture of experts of one block, in module `moe`. Its bias, if configured, is a buffer.
void AddMoe(ParamList& params, std::vector<StepInput>& buffers, const ModelConfig& config,
            int64_t layer);
at::Tensor Moe(const ModelWeights& weights, const ModelConfig& config, const at::Tensor& x,
               int64_t layer);
std::string ExpertBiasName(int64_t layer);
// Returns the bias after a step in which experts received `counts` tokens over all ranks. This is
// TorchTitan's load balancing without an auxiliary loss.
at::Tensor BalancedBias(const MoeConfig& moe, const at::Tensor& bias, const at::Tensor& counts);

// TorchTitan's initialization for Llama and DeepSeek:
//
// - 0.02 for most weights.
// - Less with depth for weights that write to the residual stream.
// - 1 for the embedding table, or 0.02 if it is tied, as in published checkpoints.
// - The output is scaled so that logits have size one.
InitDistribution DecoderInit(const ModelConfig& config, std::string_view name, int64_t layer);
// 0.02 for all weights.
InitDistribution PlainInit(const ModelConfig& config, std::string_view name, int64_t layer);
// Returns 0.02 / sqrt(2 (layer + 1)).
InitDistribution DepthScaledInit(int64_t layer);

// Rules for embedding, grouped-query attention, feed-forward, norms, output and loss.
compile::ParallelRules DecoderRules();
// Adds rules for mixtures of experts.
void AddMoeRules(compile::ParallelRules& rules);

}  // namespace heddle::run
