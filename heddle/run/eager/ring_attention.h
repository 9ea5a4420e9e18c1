// Causal attention in which ranks see the keys of one rank after another.
#pragma once

#include "heddle/run/eager/context_attention.h"

namespace heddle::run {

// Attends to the keys and values of all ranks: this rank's own first, then those of the rank before
// it, and so on around the ring. Merges the results as PyTorch's ring attention does. Sums
// gradients in f32.
at::Tensor RingAttention(const GroupRank& rank, bool head_tail, const AttentionInputs& inputs);

}  // namespace heddle::run
