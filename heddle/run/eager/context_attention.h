// Causal attention in which each rank of a group has some positions of every sequence. On CPU.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/run/eager/thread_group.h"
#include "heddle/run/layers/layers.h"

namespace heddle::run {

// A rank in a group.
struct GroupRank {
  ThreadGroup* group = nullptr;
  int64_t member = 0;
};

// How ranks share positions and heads.
struct ContextSplit {
  // Ranks have some heads of all positions in attention. Otherwise they gather keys and values.
  bool heads = false;
  // Ranks see the keys and values of one rank after another.
  bool ring = false;
  // A rank has two parts of the positions: one from the head of the sequence and one, as far from
  // the end, from its tail.
  bool head_tail = false;
  // Keys and values are expanded from gathered latents: every rank has those of all positions, in
  // the order of ranks.
  bool latents = false;
};

// Returns the positions that one of `parts` ranks has.
at::Tensor EagerPositions(int64_t whole, int64_t parts, int64_t part, bool head_tail);

// Attends to the keys and values of all ranks, which move in forward and again in backward. Sums
// gradients of keys and values over ranks, or over repeated heads, in f32.
at::Tensor ContextAttention(const GroupRank& rank, const ContextSplit& split,
                            const AttentionInputs& inputs);

// Gathers latents, [batch, positions, ...]. Sums their gradients over ranks in f32.
at::Tensor GatherLatents(const GroupRank& rank, const at::Tensor& latents);

}  // namespace heddle::run
