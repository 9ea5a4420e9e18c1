#include "heddle/compile/shard/check_placements.h"

#include <algorithm>

#include "heddle/compile/shard/node_facts.h"
#include "heddle/compile/shard/scope_facts.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

class Checker {
 public:
  Checker(const Graph& graph, const Mesh& mesh)
      : graph_(graph), mesh_(mesh), facts_(graph, mesh), scopes_(graph) {}

  // Describes the problem of a node, or returns nothing.
  std::string Check(NodeId node) {
    // A redistribution may have any result, and a constant may be created with any split.
    if (graph_[node].op == op::shard_redistribute || IsConstant(graph_, node)) return "";
    std::vector<NodeFacts::Operand> operands;
    std::vector<PlacementId> results;
    for (ValueId v : graph_.operands(node))
      operands.push_back({v, v ? graph_[v].placement : PlacementTable::kReplicated});
    for (ValueId v : graph_.results(node)) results.push_back(graph_[v].placement);
    if (std::ranges::all_of(operands, IsWhole, &NodeFacts::Operand::placement) &&
        std::ranges::all_of(results, IsWhole))
      return "";
    Result<const NodePlacing*> placing =
        facts_.Place(node, operands, scopes_.local(graph_[node]), &results);
    if (!placing.ok()) return placing.diagnostics()[0].message;
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!operands[i].value) continue;
      const Placement& is = graph_.placements()[operands[i].placement];
      const Placement& needed = (*placing)->operands[i];
      if (is == needed) continue;
      size_t rank = graph_.types().rank(graph_.type(operands[i].value));
      return fmt::format("%{} = {}: operand %{} is {}, but must be {}",
                         graph_.name(graph_[node].first_result), graph_.op(node).name(),
                         graph_.name(operands[i].value), FormatPlacement(is, rank, mesh_),
                         FormatPlacement(needed, rank, mesh_));
    }
    return "";
  }

 private:
  static bool IsWhole(PlacementId id) { return id == PlacementTable::kReplicated; }

  const Graph& graph_;
  const Mesh& mesh_;
  NodeFacts facts_;
  ScopeFacts scopes_;
};

}  // namespace

std::vector<Misplaced> FindMisplaced(const Graph& graph, const Mesh& mesh, size_t most) {
  std::vector<Misplaced> out;
  Checker checker(graph, mesh);
  for (NodeId node : graph.nodes()) {
    if (out.size() == most) break;
    std::string why = checker.Check(node);
    if (!why.empty()) out.push_back({node, std::move(why)});
  }
  return out;
}

}  // namespace heddle::compile
