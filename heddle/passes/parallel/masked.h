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
// A loss needs less: the rows of other ranks' classes get the class that is ignored.
#pragma once

#include <vector>

#include "heddle/ir/rewriter.h"

namespace heddle {

// The axes that split the table of a lookup; none for other ops. `operands` are their global placements.
Axes MaskedAxes(const Graph& graph, NodeId node, const std::vector<const Placement*>& operands,
                const Placement& result);
// The value whose first dimension (of a loss, the last) is the table.
ValueId MaskedTable(const Graph& graph, NodeId node);
// Rewrites the lookup of a graph whose types are local already. `table` is the table's global shape.
void ShiftLookup(Graph& graph, Rewriter& rewriter, NodeId node, const Axes& over,
                 const std::vector<int64_t>& table);

}  // namespace heddle
