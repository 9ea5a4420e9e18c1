// Mixtures whose experts ranks share: rows go to the ranks that have their experts in front of the products, and come back behind them.
//
//   %y = aten._grouped_mm(%x, %w, offs=%ends)        : bf16[64,16]        in a module that a plan calls `experts [ep]` becomes
//
//   %n = shard.expert_counts(%counts, over=[ep])
//   %e = shard.expert_ends(%n, %w, over=[ep])
//   %d = shard.dispatch(%x, %counts, %n, over=[ep], times=4)              : bf16[256,16]
//   %g = aten._grouped_mm(%d, %w, offs=%e)                                : bf16[256,16]
//   %y = shard.combine(%g, %counts, %n, over=[ep], times=4)               : bf16[64,16]
//
// What works on rows one by one in between stays with the experts. In backward gradients take the same ways.
#pragma once

#include "heddle/compile/passes/parallel/propagate/region.h"
#include "heddle/core/ir/edit/rewriter.h"

namespace heddle::compile {

// Fails where experts or rows do not divide among ranks, and where the ends of groups are no cumulative counts.
Result<Changed> SpreadExperts(Graph& graph, const Regions& regions, const Mesh& mesh);

}  // namespace heddle::compile
