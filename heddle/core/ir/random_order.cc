#include "heddle/core/ir/random_order.h"

#include <fmt/core.h>

namespace heddle {

std::vector<std::string> RandomOrder(const Module& module) {
  std::vector<std::string> order;
  for (const Graph& graph : module.graphs) {
    for (NodeId id : graph.nodes()) {
      Effect effect = graph.op(id).effect();
      if (effect != Effect::kRandom && effect != Effect::kOpaque) continue;
      std::string_view name =
          graph[id].result_count > 0 ? graph.name(graph[id].first_result) : std::string_view();
      std::string_view op = effect == Effect::kOpaque ? std::string_view(graph.attrs(id).opaque_op)
                                                      : graph.op(id).name();
      order.push_back(fmt::format("%{} = {}", name, op));
    }
  }
  return order;
}

}  // namespace heddle
