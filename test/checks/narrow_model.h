// Narrow models, for tests in bf16: a CPU without bf16 instructions multiplies 500 times slower
// than in f32.
#pragma once

#include <algorithm>

#include "heddle/run/models/config.h"

namespace heddle {

// Reduces layers, heads, columns and experts.
inline void MakeNarrow(run::ModelConfig& config) {
  config.n_layers = std::min<int64_t>(config.n_layers, 2);
  config.dim = 64;
  config.n_heads = 4;
  config.n_kv_heads = std::min<int64_t>(config.n_kv_heads, 4);
  config.head_dim = 16;
  config.ffn_dim = 128;
  config.vocab_size = 256;
  if (config.moe.experts > 0) {
    config.moe.experts = 8;
    config.moe.top_k = std::min<int64_t>(config.moe.top_k, 3);
    config.moe.ffn_dim = 32;
  }
  if (config.mla.kv_rank > 0) {
    config.mla.q_rank = std::min<int64_t>(config.mla.q_rank, 32);
    config.mla.kv_rank = 32;
    config.mla.nope_dim = 16;
    config.mla.rope_dim = 8;
    config.mla.v_dim = 16;
  }
}

}  // namespace heddle
