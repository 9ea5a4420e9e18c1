// What families of decoders share: parameters in registration order, the order of layers, what presets may split.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/run/models/family.h"

namespace heddle::run {

// Collects parameters under a prefix.
class ParamList {
 public:
  void Add(const std::string& name, std::vector<int64_t> shape, const std::string& unit) {
    params_.push_back({name, std::move(shape), unit});
  }
  std::vector<ParamSpec> Take() { return std::move(params_); }

 private:
  std::vector<ParamSpec> params_;
};

// Names of FSDP units: each block is one; the embedding; the final norm with the output. Tied weights make one of the last two.
std::string BlockUnit(int64_t layer);
std::string EmbeddingUnit(const ModelConfig& config);
std::string OutputUnit(const ModelConfig& config);

void AddEmbedding(ParamList& params, const ModelConfig& config);
// wq, wk, wv and wo of grouped-query attention, in module `attention`.
void AddAttention(ParamList& params, const ModelConfig& config, const std::string& unit);
void AddFeedForward(ParamList& params, const std::string& prefix, int64_t dim, int64_t hidden,
                    const std::string& unit);

// How a family registers the parameters of a block.
struct BlockParams {
  void (*add_attention)(ParamList& params, const ModelConfig& config, const std::string& unit);
  // The norms of a block come before its feed-forward network, not after it.
  bool norms_first = false;
};
// Embedding, blocks, norm, output. A block adds the family's attention and then a feed-forward
// network or experts to the residual stream, each of a norm of it.
FamilyParts DecoderParts(const ModelConfig& config, std::vector<StepInput> buffers,
                         const BlockParams& block);

// Queries or keys [batch, positions, heads, size] with their positions, and with the norm of this
// name if the family has one.
using RotateHeads = std::function<at::Tensor(const at::Tensor& heads, std::string_view norm)>;
// Attention with the parameters of AddAttention.
at::Tensor GroupedQueryAttention(const ModelWeights& weights, const ModelConfig& config,
                                 const at::Tensor& x, const RotateHeads& rotate);

// The mixture of experts of one block, in module `moe`; its bias, if it has one, is a buffer.
void AddMoe(ParamList& params, std::vector<StepInput>& buffers, const ModelConfig& config,
            int64_t layer);
at::Tensor Moe(const ModelWeights& weights, const ModelConfig& config, const at::Tensor& x,
               int64_t layer);
std::string ExpertBiasName(int64_t layer);
// The bias after a step in which experts had so many tokens, of all ranks together: TorchTitan's balance without a loss.
at::Tensor BalancedBias(const MoeConfig& moe, const at::Tensor& bias, const at::Tensor& counts);

// TorchTitan's for Llama and DeepSeek: 0.02; what writes to the residual stream starts smaller the deeper it is; the table of tokens
// 1, and the output so that logits are of size one. A tied table has 0.02, as the published checkpoints say.
Spread DecoderSpread(const ModelConfig& config, std::string_view name, int64_t layer);
// 0.02 / sqrt(2 (layer + 1)).
Spread DepthSpread(int64_t layer);

// Embedding, grouped-query attention, feed-forward, norms, output and loss.
compile::ParallelRules DecoderRules();
// The mixtures of experts.
void AddMoeRules(compile::ParallelRules& rules);

}  // namespace heddle::run
