// Parts of Llama that families with other constants share.
#pragma once

#include "heddle/run/models/decoder.h"

namespace heddle::run::llama {

// Grouped-query attention with rotary embedding of adjacent pairs.
at::Tensor Attention(const ModelWeights& weights, const ModelConfig& config, const at::Tensor& x,
                     int64_t layer);
FamilyParts Make(const ModelConfig& config, const BatchConfig& batch);
// Refuses experts.
Status CheckDense(const ModelConfig& config);

// Rows of queries and keys are reordered.
inline constexpr HfName kHfNames[] = {
    {"attention.wq.weight", "self_attn.q_proj.weight", &ModelConfig::n_heads},
    {"attention.wk.weight", "self_attn.k_proj.weight", &ModelConfig::n_kv_heads},
};

// A family that computes what Llama does.
constexpr Family MakeFamily(std::string_view name, std::vector<ModelConfig> (*flavors)(),
                            const HfMapping& hf, std::span<const PublishedRun> published = {}) {
  return {.name = name,
          .flavors = flavors,
          .check = CheckDense,
          .make = Make,
          .init = DecoderInit,
          .rules = DecoderRules,
          .attention = Attention,
          .adapters = true,
          .hf = hf,
          .published = published};
}

}  // namespace heddle::run::llama
