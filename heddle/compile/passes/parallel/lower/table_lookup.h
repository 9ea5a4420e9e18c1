// Lookups by number in a table of which this rank has a part: embedding rows, classes of a loss.
//
//   %e = aten.embedding(%w, %i)     with %w: bf16[8{tp},4] becomes, for two ranks,
//
//   %begin = shard.bound(size=8, over=[tp])
//   %end   = shard.bound(size=8, over=[tp], end=true)
//   %other = (%i < %begin) | (%i >= %end)
//   %j     = where(%other, 0, %i - %begin)
//   %e     = where(%other, 0, aten.embedding(%w, %j))        pending over tp
//
// A loss needs less: the rows of other ranks' classes get the class that is ignored. Ops say which of it they are: TableLookup.
#pragma once

#include "heddle/core/ir/edit/rewriter.h"

namespace heddle::compile {

// The table of an op that has a `lookup`.
ValueId TableOf(const Graph& graph, NodeId node);
// Rewrites the lookup of a graph whose types are local already, in a table whose rows, `size` in all, are split over `over`.
void ShiftLookup(Graph& graph, Rewriter& rewriter, NodeId node, const Axes& over, int64_t size);

}  // namespace heddle::compile
