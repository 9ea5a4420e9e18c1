// Mixtures with experts shared among ranks: rows move to the ranks of their experts before the
// products, and return after them.
//
//   %y = aten._grouped_mm(%x, %w, offs=%ends)                  : bf16[64,16]
//
// in a module with `experts [ep]` in the plan becomes
//
//   %n = shard.expert_counts(%counts, over=[ep])
//   %e = shard.expert_ends(%n, %w, over=[ep])
//   %d = shard.dispatch(%x, %counts, %n, over=[ep], times=4)   : bf16[256,16]
//   %g = aten._grouped_mm(%d, %w, offs=%e)                     : bf16[256,16]
//   %y = shard.combine(%g, %counts, %n, over=[ep], times=4)    : bf16[64,16]
//
// Ops in between that work row by row stay with the experts. In backward, gradients move the same
// way.
#pragma once

#include "heddle/compile/passes/parallel/propagate/module_boundaries.h"
#include "heddle/core/ir/edit/rewriter.h"

namespace heddle::compile {

// Fails if ranks do not divide experts or rows, or if the ends of groups are not cumulative counts.
Result<Changed> SpreadExperts(Graph& graph, const ModuleBoundaries& boundaries, const Mesh& mesh);

}  // namespace heddle::compile
