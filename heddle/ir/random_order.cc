#include "heddle/ir/random_order.h"

#include <fmt/core.h>

namespace heddle {

std::vector<std::string> RandomOrder(const Module& module) {
  std::vector<std::string> order;
  for (const Graph& graph : module.graphs) {
    for (NodeId id : graph.nodes()) {
      if (graph.op(id).effect() != Effect::kRandom) continue;
      std::string_view name =
          graph[id].result_count > 0 ? graph.name(graph[id].first_result) : std::string_view();
      order.push_back(fmt::format("%{} = {}", name, graph.op(id).name()));
    }
  }
  return order;
}

}  // namespace heddle
