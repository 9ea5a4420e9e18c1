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
// Adds a weight of `size`, and a bias if the family's norms have one.
void AddNorm(ParamList& params, const ModelConfig& config, const std::string& name,
             const std::string& unit);

// Describes how a family registers the parameters of a block.
struct BlockParams {
  void (*add_attention)(ParamList& params, const ModelConfig& config, const std::string& unit);
  // The norms of a block come before its feed-forward network, not after it.
  bool norms_first = false;
  void (*add_feed_forward)(ParamList& params, const std::string& prefix, int64_t dim,
                           int64_t hidden, const std::string& unit) = AddFeedForward;
  // Attention and feed-forward end with a bias, in modules `attention_output` and `ffn_output`:
  // outside of the modules whose results ranks sum.
  bool output_biases = false;
};
// Returns embedding, blocks, norm and output. A block adds attention to the residual stream, and
// then a feed-forward network or experts, each with norms (Family::norms).
FamilyParts DecoderParts(const ModelConfig& config, std::vector<StepInput> buffers,
                         const BlockParams& block);

// Returns the family's norm of x, in module `name`.
at::Tensor Norm(const ModelWeights& weights, const ModelConfig& config, std::string_view name,
                const at::Tensor& x);
// Returns x plus a part of a block, `attention` or `ffn`, with its norms and its bias.
at::Tensor AddPart(const ModelWeights& weights, const ModelConfig& config, const std::string& name,
                   const at::Tensor& x, const std::function<at::Tensor(const at::Tensor&)>& part);
// Scales the embeddings of tokens and adds those of positions, if the family does. `own` selects
// the positions of `x` from all, [..., positions, dim].
at::Tensor FinishEmbedding(const ModelWeights& weights, const ModelConfig& config, at::Tensor x,
                           const std::function<at::Tensor(const at::Tensor&)>& own);
// Limits logits, if the model does.
at::Tensor CappedLogits(const ModelConfig& config, const at::Tensor& logits);

// Applies rotary embedding to queries or keys [batch, positions, heads, size], after the norm of
// this name if the family has one.
using RotateHeads = std::function<at::Tensor(const at::Tensor& heads, std::string_view norm)>;
// Computes attention with the parameters of AddAttention.
at::Tensor GroupedQueryAttention(const ModelWeights& weights, const ModelConfig& config,
                                 const at::Tensor& x, int64_t layer, const RotateHeads& rotate);

// The buffers `rope_cos` and `rope_sin` of families that rotate halves of heads, and those for
// layers with a window.
std::vector<StepInput> HalfRotations(const ModelConfig& config, const BatchConfig& batch);
// The names of a layer's buffers.
std::pair<std::string_view, std::string_view> HalfRotationNames(const ModelConfig& config,
                                                                int64_t layer);
// The positions of a sequence, for learned embeddings.
inline constexpr std::string_view kPositionIds = "position_ids";

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
// Biases of experts, for w1, w2 and w3. They are stacks of columns, so that they are split as the
// weights are. Products that add them need operands with `kBiasColumns` columns.
inline constexpr int64_t kBiasColumns = 8;
inline constexpr std::string_view kExpertBiases[] = {"w1_bias_EF1", "w2_bias_ED1", "w3_bias_EF1"};
// Adds rules for mixtures of experts.
void AddMoeRules(compile::ParallelRules& rules);

// --- Low-rank adapters (LoraConfig)

// Those of `layers.0.attention.wq.weight` are `layers.0.attention.wq.lora_a` and
// `layers.0.attention.wq.lora_b`.
inline constexpr std::string_view kLoraA = "lora_a";
inline constexpr std::string_view kLoraB = "lora_b";

bool IsAdapter(std::string_view param);
// Whether a parameter of a model has adapters.
bool HasAdapter(const LoraConfig& lora, std::string_view param);
// Freezes all parameters, and adds A and B after each weight that has adapters.
std::vector<ParamSpec> WithAdapters(const LoraConfig& lora, std::vector<ParamSpec> params);

}  // namespace heddle::run
