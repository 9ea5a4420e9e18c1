#include "heddle/compile/passes/fsdp/hoist.h"

namespace heddle::compile {

void HoistBefore(const Graph& graph, const Weights& weights, NodeId gather, NodeId anchor,
                 Scheduler& scheduler) {
  std::vector<NodeId> open{gather};
  while (!open.empty()) {
    NodeId id = open.back();
    open.pop_back();
    for (ValueId v : graph.operands(id)) {
      NodeId producer = weights.is_weight(v) ? graph[v].producer : NodeId();
      if (producer && scheduler.PreferBefore(producer, anchor)) open.push_back(producer);
    }
  }
}

}  // namespace heddle::compile
