// Causal attention whose queries are split by position:
//
//   %o, %l = aten._scaled_dot_product_flash_attention_for_cpu(%q, %k, %v, is_causal=true)
//
// with queries over `cp` becomes
//
//   %o, %l = shard.attention(%q, %k, %v, over=[cp])
//
// Attention within documents becomes `shard.attention` with the positions of the queries.
#pragma once

#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/ir/mesh.h"

namespace heddle::compile {

// Whether the node is causal attention.
bool IsCausalAttention(const Graph& graph, NodeId node);
// The operand that the queries are.
ValueId QueryOf(const Graph& graph, NodeId node);
// Replaces a node whose queries are split over `over`. Its types are local.
void AttendToPart(Graph& graph, Rewriter& rewriter, NodeId node, const Axes& over);

}  // namespace heddle::compile
