// Nodes with pinned splits: from a statement of the plan, or from a solver.
#include "heddle/compile/passes/parallel/propagate/deviations.h"
#include "heddle/compile/passes/parallel/propagate/propagator.h"

namespace heddle::compile {

Result<std::vector<NodeId>> Propagator::Compare(const std::vector<const OpSplit*>& chosen) {
  chosen_ = &chosen;
  HEDDLE_RETURN_IF_ERROR(Run());
  return std::move(deviations_);
}

Status Propagator::PlaceAs(NodeId node, const OpSplit& split, uint32_t line) {
  if (IsConstant(graph_, node)) {
    settled_.insert(graph_[node].first_result);
    return Finish(node, split.results);
  }
  for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
    ValueId v = graph_.operands(node)[i];
    if (!v) continue;
    if (OperandOf(v).is_free) Settle(v, split.operands[i]);
    ValueId moved = Redistribute(v, graph_.placements().Intern(split.operands[i]),
                                 {.why = scopes_.why(graph_[node])}, node);
    if (moved != v) rewriter_.SetOperand(node, i, moved);
  }
  if (!CanBeSplit(node, split))
    return Error(Diag::kPlan, "line {} of the plan: no loops of {} give these placements", line,
                 graph_.op(node).name());
  return Finish(node, split.results);
}

bool Propagator::CanBeSplit(NodeId node, const OpSplit& split) {
  std::vector<NodeFacts::Operand> operands;
  for (ValueId v : graph_.operands(node))
    operands.push_back({v, v ? At(v) : PlacementTable::kReplicated});
  std::vector<PlacementId> wanted;
  for (const Placement& placement : split.results)
    wanted.push_back(graph_.placements().Intern(placement));
  Result<const NodePlacing*> placing =
      facts_.Place(node, operands, scopes_.local(graph_[node]), &wanted);
  return placing.ok() && SameOperands(node, **placing, split);
}

bool Propagator::SameOperands(NodeId node, const NodePlacing& placing, const OpSplit& split) const {
  for (size_t i = 0; i < split.operands.size(); ++i) {
    if (graph_.operands(node)[i] && placing.operands[i] != split.operands[i]) return false;
  }
  return true;
}

bool Propagator::Deviates(NodeId node, const OpSplit& chosen) {
  if (IsConstant(graph_, node)) return false;
  for (size_t i = 0; i < chosen.operands.size(); ++i) {
    NodeFacts::Operand operand = OperandOf(graph_.operands(node)[i]);
    if (!operand.is_free) continue;
    NodeId constant = graph_[operand.value].producer;
    const OpSplit* made = (*chosen_)[constant.index()];
    if (made == nullptr || made->results[0] == chosen.operands[i]) continue;
    deviations_.push_back(constant);
    Settle(operand.value, made->results[0]);
  }
  Result<const NodePlacing*> placing = PlaceFreely(node);
  return !placing.ok() || (*placing)->results != chosen.results ||
         !SameOperands(node, **placing, chosen);
}

void Propagator::CompareConstants() {
  for (uint32_t n = 0; n < chosen_->size(); ++n) {
    NodeId node(n);
    const OpSplit* made = (*chosen_)[n];
    if (made == nullptr || !IsConstant(graph_, node)) continue;
    ValueId v = graph_[node].first_result;
    if (At(v) != graph_.placements().Intern(made->results[0])) deviations_.push_back(node);
  }
}

Result<std::vector<NodeId>> FindDeviations(const Module& module, const Plan& plan,
                                           const std::vector<const OpSplit*>& chosen) {
  Module copy = module;
  copy.mesh = plan.mesh;
  Graph& graph = copy.graphs[0];
  HEDDLE_TRY(ModuleBoundaries boundaries, ModuleBoundaries::Find(graph, plan));
  PassContext context(copy.mesh);
  return Propagator(copy, graph, plan, std::move(boundaries), context).Compare(chosen);
}

}  // namespace heddle::compile
