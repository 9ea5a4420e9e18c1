// Models and their sizes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle::run {

struct Family;

// How rotary embedding is stretched for long contexts: not at all, Llama's blend by wavelength, or YaRN's by dimension.
enum class RopeScaling : uint8_t { kNone, kLlama, kYarn };

struct RopeConfig {
  double theta = 500000.0;
  RopeScaling scaling = RopeScaling::kNone;
  // Slow frequencies are divided by it.
  double factor = 1.0;
  // The context that frequencies were made for.
  int64_t original_length = 8192;
  // Llama: wavelengths of more than original_length / low_freq are stretched, those of less than original_length / high_freq stay.
  double low_freq = 1.0;
  double high_freq = 4.0;
  // YaRN: dimensions that turn more often than `fast` times in the original length stay, those below `slow` are stretched.
  double fast = 32.0;
  double slow = 1.0;
  // Rotated queries and keys are multiplied by it.
  double attention_factor = 1.0;
};

enum class RouterScore : uint8_t { kSoftmax, kSigmoid };
// How good a group of experts is: its best expert, or its two best together.
enum class GroupScore : uint8_t { kMax, kTopTwo };

// Mixture of experts; `experts` is 0 for dense models.
struct MoeConfig {
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t ffn_dim = 0;
  // Experts that every token passes through, as one feed-forward of so many times ffn_dim.
  int64_t shared_experts = 0;
  // How many layers at the start are dense.
  int64_t dense_layers = 0;
  RouterScore score = RouterScore::kSoftmax;
  // Scores of the chosen experts are made to add up to 1.
  bool normalize = false;
  double route_scale = 1.0;
  // Only experts of the best groups are chosen from; 0 for no groups.
  int64_t groups = 0;
  int64_t limited_groups = 0;
  GroupScore group_score = GroupScore::kTopTwo;
  // Has a bias that takes part in choosing, not in weighting.
  bool bias = false;
  // By how much an update moves the bias of an expert that had fewer tokens than others up, and of one that had more down.
  double bias_rate = 1e-3;
};

// Multi-head latent attention; `kv_rank` is 0 for plain attention.
struct MlaConfig {
  int64_t q_rank = 0;
  int64_t kv_rank = 0;
  int64_t nope_dim = 128;
  int64_t rope_dim = 64;
  int64_t v_dim = 128;
  // Attention is sharpened as contexts are stretched: its scale grows by (0.1 mscale ln(factor) + 1)^2.
  double mscale = 1.0;
  // Of the norms of latents.
  double norm_eps = 1e-6;
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
  // The longest context that the published model is meant for. Nothing is computed with it.
  int64_t max_length = 131072;
  bool tied = false;
  double norm_eps = 1e-5;
  RopeConfig rope;
  MoeConfig moe;
  MlaConfig mla;

  int64_t head_size() const { return head_dim != 0 ? head_dim : dim / n_heads; }
  // Elements of a query or key head; latent attention has heads of its own size.
  int64_t query_size() const { return mla.kv_rank > 0 ? mla.nope_dim + mla.rope_dim : head_size(); }
  bool is_moe_layer(int64_t layer) const { return moe.experts > 0 && layer >= moe.dense_layers; }
};

// All flavors of all families, in the order in which they are listed to users.
const std::vector<ModelConfig>& AllModels();
// Fails with the nearest name.
Result<ModelConfig> FindModel(std::string_view family, std::string_view flavor);
// A constant of a model. It is a flag, and checkpoints store it to identify the model. Exactly one
// of `size`, `number` and `choose` is set.
struct ConfigField {
  std::string_view name;
  int64_t& (*size)(ModelConfig&) = nullptr;
  double& (*number)(ModelConfig&) = nullptr;
  // Sets what the choice at a position stands for.
  void (*choose)(ModelConfig&, size_t) = nullptr;
  std::span<const std::string_view> choices = {};
  // The position of the choice that the configuration has.
  size_t (*chosen)(const ModelConfig&) = nullptr;
};
// All of them, in the order in which they are listed to users.
std::span<const ConfigField> ConfigFields();
// Fail for a name that no field of this kind has (`n_layers`; `norm_eps`; `moe.score`).
Status OverrideSize(ModelConfig& config, std::string_view name, int64_t value);
Status OverrideNumber(ModelConfig& config, std::string_view name, double value);
Status OverrideChoice(ModelConfig& config, std::string_view name, std::string_view value);
// Sizes and numbers that are out of range, or do not fit together, are an error.
Status CheckConfig(const ModelConfig& config);
// For families of decoders: heads, their sizes and experts.
Status CheckDecoder(const ModelConfig& config);

}  // namespace heddle::run
