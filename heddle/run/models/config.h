// Configurations of models.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle::run {

struct Family;

// How rotary embedding is stretched for long contexts: not at all, Llama's blend by wavelength,
// YaRN's by dimension, or all frequencies by one factor.
enum class RopeScaling : uint8_t { kNone, kLlama, kYarn, kLinear };

struct RopeConfig {
  double theta = 500000.0;
  // The base for layers with a window, whose frequencies are not scaled. 0: no difference.
  double local_theta = 0;
  RopeScaling scaling = RopeScaling::kNone;
  // Divides slow frequencies.
  double factor = 1.0;
  // The context length of the unscaled frequencies.
  int64_t original_length = 8192;
  // Llama: wavelengths above original_length / low_freq are stretched; wavelengths below
  // original_length / high_freq are not.
  double low_freq = 1.0;
  double high_freq = 4.0;
  // YaRN: dimensions that rotate more than `fast` times over the original length are not stretched;
  // those that rotate less than `slow` times are.
  double fast = 32.0;
  double slow = 1.0;
  // YaRN: the bounds of both are whole dimensions.
  bool truncate = true;
  // Multiplies rotated queries and keys.
  double attention_factor = 1.0;
};

enum class RouterScore : uint8_t { kSoftmax, kSigmoid };
// The score of a group of experts: its best expert, or the sum of its two best.
enum class GroupScore : uint8_t { kMax, kTopTwo };

// Mixture of experts; `experts` is 0 for dense models.
struct MoeConfig {
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t ffn_dim = 0;
  // Experts that every token passes through, computed as one feed-forward of shared_experts *
  // ffn_dim.
  int64_t shared_experts = 0;
  // Number of dense layers at the start.
  int64_t dense_layers = 0;
  RouterScore score = RouterScore::kSoftmax;
  // Normalizes the scores of the chosen experts to sum 1.
  bool normalize = false;
  double route_scale = 1.0;
  // The router chooses experts from the best `limited_groups` of `groups` groups. 0: no groups.
  int64_t groups = 0;
  int64_t limited_groups = 0;
  GroupScore group_score = GroupScore::kTopTwo;
  // Adds a bias to the scores for choosing experts, but not for weighting them.
  bool bias = false;
  // Change of the bias per update: up for an expert with fewer tokens than the mean, down for more.
  double bias_rate = 1e-3;
};

// Multi-head latent attention; `kv_rank` is 0 for plain attention.
struct MlaConfig {
  int64_t q_rank = 0;
  int64_t kv_rank = 0;
  int64_t nope_dim = 128;
  int64_t rope_dim = 64;
  int64_t v_dim = 128;
  // Scales attention for stretched contexts by (0.1 mscale ln(factor) + 1)^2.
  double mscale = 1.0;
  // Epsilon of the norms of latents.
  double norm_eps = 1e-6;
};

// Low-rank adapters: y = W x + alpha / rank * B (A x), where only A and B are trained. W is
// [out, in], A [rank, in] and B [out, rank].
struct LoraConfig {
  // 0: no adapters.
  int64_t rank = 0;
  double alpha = 16;
  // The weights of attention and feed-forward that have adapters, by Heddle's or Hugging Face's
  // names.
  std::string targets = "wq,wk,wv,wo,w1,w2,w3";
};

struct ModelConfig {
  // One of Families().
  const Family* family = nullptr;
  std::string flavor;
  int64_t dim = 0;
  int64_t n_layers = 0;
  int64_t n_heads = 1;
  int64_t n_kv_heads = 1;
  // 0: dim / n_heads.
  int64_t head_dim = 0;
  int64_t ffn_dim = 0;
  int64_t vocab_size = 0;
  // The longest context of the published model. Does not affect the computation.
  int64_t max_length = 131072;
  // Number of positions that a query attends to, its own included; 0: all before it.
  int64_t window = 0;
  // Every such layer has no window: with 2, the second, the fourth and so on. 0: all have it.
  int64_t global_every = 0;
  // Attention scores are divided by the square root of this; 0: of the head size.
  int64_t query_scalar = 0;
  // Limit attention scores and logits to this absolute value, by a tanh; 0: no limit.
  double attention_softcap = 0;
  double logit_softcap = 0;
  bool tied = false;
  double norm_eps = 1e-5;
  RopeConfig rope;
  MoeConfig moe;
  MlaConfig mla;
  LoraConfig lora;

  int64_t head_size() const { return head_dim != 0 ? head_dim : dim / n_heads; }
  // Elements of a query or key head. Latent attention has its own head size.
  int64_t query_size() const { return mla.kv_rank > 0 ? mla.nope_dim + mla.rope_dim : head_size(); }
  // Whether a layer has a window, if the model has one.
  bool is_local(int64_t layer) const {
    return global_every == 0 || (layer + 1) % global_every != 0;
  }
  int64_t window_of(int64_t layer) const { return is_local(layer) ? window : 0; }
  // Whether sequences are longer than the window of a layer.
  bool windowed(int64_t seq_len) const {
    return window > 0 && seq_len > window && global_every != 1;
  }
  bool is_moe_layer(int64_t layer) const { return moe.experts > 0 && layer >= moe.dense_layers; }
};

// All flavors of all families, in the order in which users see them.
const std::vector<ModelConfig>& AllModels();
// Fails for an unknown name, and suggests the nearest one.
Result<ModelConfig> FindModel(std::string_view family, std::string_view flavor);
// A constant of a model. It is a flag, and checkpoints store it to identify the model. Exactly one
// of `size`, `number`, `choose` and `text` is set.
struct ConfigField {
  std::string_view name;
  int64_t& (*size)(ModelConfig&) = nullptr;
  double& (*number)(ModelConfig&) = nullptr;
  // Applies the choice at a position of `choices`.
  void (*choose)(ModelConfig&, size_t) = nullptr;
  std::span<const std::string_view> choices = {};
  // Returns the position of the configured choice.
  size_t (*chosen)(const ModelConfig&) = nullptr;
  std::string& (*text)(ModelConfig&) = nullptr;
  // Empty: `replace the flavor's NAME`.
  std::string_view help = {};

  // `--model.dim`, or `--lora.rank`.
  std::string flag() const;
};
// All fields, in the order in which users see them.
std::span<const ConfigField> ConfigFields();
// Set a field by name, such as `n_layers`, `norm_eps` or `moe.score`. Fail for an unknown name.
Status OverrideSize(ModelConfig& config, std::string_view name, int64_t value);
Status OverrideNumber(ModelConfig& config, std::string_view name, double value);
// Sets a choice or a text.
Status OverrideChoice(ModelConfig& config, std::string_view name, std::string_view value);
// Fails for sizes and numbers that are out of range or do not fit together.
Status CheckConfig(const ModelConfig& config);
// Checks the heads, their sizes and the experts of a decoder.
Status CheckDecoder(const ModelConfig& config);

}  // namespace heddle::run
