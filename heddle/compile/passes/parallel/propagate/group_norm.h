// The norm of all gradients, over ranks.
//
//   %s = heddle.squared_norm(%a, %b, %c)
//
// with %a, %c split over [dp,tp] and %b over [dp] becomes
//
//   %1 = heddle.squared_norm(%a, %c, places=[0,2], count=3)   : f32[3]{+dp,+tp}
//   %2 = heddle.squared_norm(%b, places=[1], count=3)         : f32[3]{+dp}
//   %3 = shard.redistribute(%2, why=norm)                     : f32[3]{+dp,+tp}
//   %s = aten.add.Tensor(%1, %3)                              : f32[3]{+dp,+tp}
//
// For %3, all ranks along tp except the first replace the norms by zeros. Finally one vector is
// reduced, with one number per gradient, whatever the placements.
#pragma once

#include <functional>
#include <vector>

#include "heddle/core/ir/edit/rewriter.h"

namespace heddle::compile {

// Rewrites a node whose operands have the placements `placement_of`. Keeps a node with one group.
// Returns the new nodes in order.
std::vector<NodeId> GroupNorm(Graph& graph, Rewriter& rewriter, NodeId node,
                              const std::function<PlacementId(ValueId)>& placement_of);

}  // namespace heddle::compile
