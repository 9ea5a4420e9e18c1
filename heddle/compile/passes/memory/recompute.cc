#include "heddle/compile/passes/memory/recompute.h"

#include "heddle/core/analysis/launch.h"
#include "heddle/core/ir/storage.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {

bool CanRecompute(const Graph& graph, NodeId node) {
  OpId id = graph[node].op;
  switch (graph.op(node).effect()) {
    case Effect::kPure:
    case Effect::kView: return true;
    case Effect::kComm: {
      if (id == op::mem_offload || id == op::mem_reload || IsTransfer(graph, node)) return false;
      if (!IsWait(graph, node)) return true;
      NodeId launch = LaunchOf(graph, node);
      return launch && CanRecompute(graph, launch);
    }
    case Effect::kUpdate:
    case Effect::kRandom:
    case Effect::kOpaque: return false;
  }
  return false;
}

std::span<const ValueId> NeededAgain(const Graph& graph, NodeId node) {
  NodeId launch = LaunchOf(graph, node);
  return graph.operands(launch ? launch : node);
}

Status CheckMarks(const Graph& graph) {
  for (NodeId node : graph.nodes()) {
    for (ValueId v : graph.operands(node)) {
      if (!Crosses(graph, node, v) || graph[v].keep != Keep::kMustRecompute) continue;
      NodeId producer = graph[v].producer;
      if (CanRecompute(graph, producer)) continue;
      return Error(Diag::kBadKeep,
                   "`%{}` is marked must_recompute and `%{}` reads it after forward, but {} has "
                   "effect {} and cannot be repeated",
                   graph.name(v), graph.name(graph[node].first_result), graph.op(producer).name(),
                   Name(graph.op(producer).effect()));
    }
  }
  return Done{};
}

}  // namespace heddle::compile
