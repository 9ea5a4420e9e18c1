// Models and their sizes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/base/result.h"

namespace heddle {

struct Family;

// How rotary embedding is stretched for long contexts: Llama's blend by wavelength, or YaRN's by dimension.
enum class RopeScaling : uint8_t { kLlama, kYarn };

// Mixture of experts; `experts` is 0 for dense models.
struct MoeConfig {
  int64_t experts = 0;
  int64_t top_k = 0;
  int64_t ffn_dim = 0;
  // Experts that every token passes through, as one feed-forward of so many times ffn_dim.
  int64_t shared_experts = 0;
  // How many layers at the start are dense.
  int64_t dense_layers = 0;
  bool sigmoid_scores = false;
  // Scores of the chosen experts are made to add up to 1.
  bool normalize = false;
  double route_scale = 1.0;
  // Only experts of the best groups are chosen from; 0 for no groups.
  int64_t groups = 0;
  int64_t limited_groups = 0;
  // Has a bias that takes part in choosing, not in weighting.
  bool bias = false;
};

// Multi-head latent attention; `kv_rank` is 0 for plain attention.
struct MlaConfig {
  int64_t q_rank = 0;
  int64_t kv_rank = 0;
  int64_t nope_dim = 128;
  int64_t rope_dim = 64;
  int64_t v_dim = 128;
  double mscale = 1.0;
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
  bool tied = false;
  double norm_eps = 1e-5;
  double rope_theta = 500000.0;
  // Slow frequencies are stretched by this; 1 for none.
  double rope_scaling = 1.0;
  RopeScaling rope_scaling_kind = RopeScaling::kLlama;
  MoeConfig moe;
  MlaConfig mla;

  int64_t head_size() const { return head_dim != 0 ? head_dim : dim / n_heads; }
  bool is_moe_layer(int64_t layer) const { return moe.experts > 0 && layer >= moe.dense_layers; }
};

// All flavors of all families, in the order in which they are listed to users.
const std::vector<ModelConfig>& AllModels();
// Fails with the nearest name.
Result<ModelConfig> FindModel(std::string_view family, std::string_view flavor);
// Sets a size by its name (`n_layers`, `moe.top_k`).
Status OverrideSize(ModelConfig& config, std::string_view name, int64_t value);
// The names that OverrideSize knows.
std::vector<std::string_view> OverridableSizes();
// Sizes that are out of range, or do not fit together, are an error.
Status CheckConfig(const ModelConfig& config);
// For families of decoders: heads, their sizes and experts.
Status CheckDecoder(const ModelConfig& config);

}  // namespace heddle
