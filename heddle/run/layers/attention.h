// Causal attention: fused kernels, or matmuls and a softmax.
#pragma once

#include "heddle/run/layers/layers.h"

namespace heddle::run {

// Returns the fastest kernel for heads of `head_size` elements: the first of cuDNN, flash and math
// that supports the device and the compute type. cuDNN's backward accumulates dQ in a varying
// order, so deterministic steps do not use it. Only flash can split queries.
AttentionKind FastestAttention(int64_t head_size, const StepNumerics& numerics);

// Only math supports a window shorter than the sequence, a softcap, and sinks.
struct AttentionOptions {
  // nullopt: 1 / sqrt(head size).
  std::optional<double> scale = std::nullopt;
  // Number of positions that a query attends to, its own included; 0: all before it.
  int64_t window = 0;
  // Limits scores to this absolute value (Softcap); 0: no limit.
  double softcap = 0;
  // A further score of every query of a head, whose share of the attention is lost, [heads].
  // Undefined: no such score.
  at::Tensor sinks = {};
};

// Returns cap tanh(x / cap).
at::Tensor Softcap(const at::Tensor& x, double cap);

// Causal attention. `query` is [batch, heads, positions, size]; keys and values may have fewer
// heads.
at::Tensor Attend(const ModelWeights& weights, const at::Tensor& query, const at::Tensor& key,
                  const at::Tensor& value, const AttentionOptions& options = {});

}  // namespace heddle::run
