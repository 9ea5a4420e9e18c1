#include "heddle/price/sim/explain/movable.h"

#include <algorithm>

#include "heddle/core/analysis/launch.h"

namespace heddle::price {

std::vector<bool> FindMovable(const Graph& graph) {
  std::vector<bool> value_is(graph.value_count());
  for (const Input& input : graph.inputs()) {
    InputRole role = input.role;
    value_is[input.value.index()] = role == InputRole::kParam || role == InputRole::kBuffer ||
                                    role == InputRole::kOpt || role == InputRole::kHyper;
  }
  std::vector<bool> movable(graph.node_count());
  for (NodeId id : graph.nodes()) {
    bool all = std::ranges::all_of(
        graph.operands(id), [&](ValueId value) { return !value || value_is[value.index()]; });
    // A receive has no operands, but it brings values of another coordinate.
    movable[id.index()] = all && graph.op(id).effect() != Effect::kRandom && !IsTransfer(graph, id);
    for (ValueId result : graph.results(id)) value_is[result.index()] = movable[id.index()];
  }
  return movable;
}

}  // namespace heddle::price
