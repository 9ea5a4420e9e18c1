#include "test/golden/unplaced.h"

#include <algorithm>

#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

// Returns the number of ranks over which a redistribution averages; 1 if it does not average.
int64_t Averaged(const Graph& graph, const Mesh& mesh, NodeId node) {
  if (graph.attrs(node).Find("average") == nullptr) return 1;
  const Placement& from = graph.placements()[graph[graph.operands(node)[0]].placement];
  const Placement& to = graph.placements()[graph[graph[node].first_result].placement];
  int64_t ranks = 1;
  for (const Partial& partial : from.partials) {
    if (std::ranges::find(to.partials, partial) == to.partials.end())
      ranks *= mesh[partial.axis].size;
  }
  return ranks;
}

void Unplace(Graph& graph, const Mesh& mesh) {
  Rewriter rewriter(graph);
  for (NodeId node : graph.nodes()) {
    if (graph[node].op != op::shard_redistribute) continue;
    const AttrValue* scale = graph.attrs(node).Find("scale");
    int64_t ranks = Averaged(graph, mesh, node);
    if (scale == nullptr && ranks == 1) {
      rewriter.ReplaceValue(graph[node].first_result, graph.operands(node)[0]);
      rewriter.Erase(node);
      continue;
    }
    Attrs attrs;
    attrs.Set("other", scale != nullptr ? *scale : AttrValue(static_cast<double>(ranks)));
    rewriter.SetOp(node, scale != nullptr ? op::mul_Scalar : op::div_Scalar,
                   graph.InternAttrs(attrs));
  }
  for (ValueId v : graph.values()) {
    if (graph[v].placement != PlacementTable::kReplicated) rewriter.SetType(v, graph.type(v));
  }
  rewriter.Commit();
  graph.SetRegions({});
}

}  // namespace

Module Unplaced(Module module) {
  for (Graph& graph : module.graphs) Unplace(graph, module.mesh);
  module.mesh = Mesh();
  return module;
}

}  // namespace heddle
