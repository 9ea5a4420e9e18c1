// The norm of all gradients, over ranks.
//
//   %s = heddle.squared_norm(%a, %b, %c)                      with %a, %c split over [dp,tp] and %b over [dp] becomes
//
//   %1 = heddle.squared_norm(%a, %c, places=[0,2], count=3)   : f32[3]{+dp,+tp}
//   %2 = heddle.squared_norm(%b, places=[1], count=3)         : f32[3]{+dp}
//   %3 = shard.redistribute(%2, why=norm)                     : f32[3]{+dp,+tp}      all ranks along tp but the first forget it
//   %s = aten.add.Tensor(%1, %3)                              : f32[3]{+dp,+tp}
//
// One vector is reduced in the end, however gradients lie, with one number for each gradient.
#pragma once

#include <functional>
#include <vector>

#include "heddle/core/ir/edit/rewriter.h"

namespace heddle::compile {

// Rewrites a node with operands that lie as `placement_of` says; a node of one group stays as it is. The new nodes, in their order.
std::vector<NodeId> GroupNorm(Graph& graph, Rewriter& rewriter, NodeId node,
                              const std::function<PlacementId(ValueId)>& placement_of);

}  // namespace heddle::compile
