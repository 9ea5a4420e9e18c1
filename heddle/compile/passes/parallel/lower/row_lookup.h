// Lookups by number in a table of which each rank has a part: embedding rows, classes of a loss.
//
//   %e = aten.embedding(%w, %i)     with %w: bf16[8{tp},4] becomes, for two ranks,
//
//   %begin = shard.bound(size=8, over=[tp])
//   %end   = shard.bound(size=8, over=[tp], end=true)
//   %other = (%i < %begin) | (%i >= %end)
//   %j     = where(%other, 0, %i - %begin)
//   %e     = where(%other, 0, aten.embedding(%w, %j))        pending over tp
//
// A loss is simpler: rows with classes of other ranks get the ignored class. RowLookup states which
// method an op uses.
#pragma once

#include "heddle/core/ir/edit/rewriter.h"

namespace heddle::compile {

// The table of an op with a `lookup`.
ValueId TableOf(const Graph& graph, NodeId node);
// Rewrites the lookup of a graph whose types are local already. `size` is the number of rows of the
// whole table, which is split over `over`.
void ShiftLookup(Graph& graph, Rewriter& rewriter, NodeId node, const Axes& over, int64_t size);

}  // namespace heddle::compile
