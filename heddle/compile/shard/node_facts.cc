#include "heddle/compile/shard/node_facts.h"

#include <algorithm>

#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

TensorFactors WholeDims(Factors& factors, const Type& type) {
  TensorFactors dims;
  for (Dim size : type.dims) {
    dims.push_back(
        {factors.Add(fmt::format("w{}", factors.factors.size()), size, FactorKind::kWhole)});
  }
  return dims;
}

Types ResultTypes(const Graph& graph, NodeId node) {
  Types types;
  for (ValueId v : graph.results(node)) types.push_back(graph.types()[graph.type(v)]);
  return types;
}

}  // namespace

bool IsConstant(const Graph& graph, NodeId node) { return graph.op(node).def->constant; }

bool IsZero(const Graph& graph, NodeId node) {
  return graph[node].op == op::zeros || graph[node].op == op::new_zeros;
}

Result<Factors> NodeFacts::FactorsOf(NodeId node) const {
  std::vector<Type> operands = OperandTypes(graph_, graph_.operands(node));
  Types results = ResultTypes(graph_, node);
  if (graph_[node].op == kOpaqueOp) {
    Factors factors;
    for (const Type& type : operands) factors.operands.push_back(WholeDims(factors, type));
    for (const Type& type : results) factors.results.push_back(WholeDims(factors, type));
    return factors;
  }
  // Shape rules only look up symbols; they never add any to a global graph.
  auto& symbols = const_cast<Graph&>(graph_).types().symbols();
  OpArgs args(graph_.op(node), graph_.attrs(node), mesh_, symbols, std::move(operands));
  return InferFactors(args, results);
}

Result<const NodePlacing*> NodeFacts::Place(NodeId node, const std::vector<Operand>& operands,
                                            const Axes& local,
                                            const std::vector<PlacementId>* wanted,
                                            PlacementId goal) {
  key_.Assign(graph_, node);
  key_.Add(local.bits());
  key_.Add(uint64_t{goal.index()} << 1 | uint64_t{wanted != nullptr});
  for (const Operand& operand : operands) {
    key_.Add(operand.value ? graph_.type(operand.value).index() : UINT32_MAX);
    key_.Add(uint64_t{operand.placement.index()} << 2 | uint64_t{operand.is_free} << 1 |
             uint64_t{operand.is_zero});
  }
  for (ValueId v : graph_.results(node)) key_.Add(graph_.type(v).index());
  if (wanted) {
    for (PlacementId p : *wanted) key_.Add(p.index());
  }
  if (const NodePlacing* known = known_.Find(key_)) return known;

  auto named = [&](Failure failure) {
    for (Diagnostic& d : failure.diagnostics) {
      d.message = fmt::format("%{} = {}{}{}: {}", graph_.name(graph_[node].first_result),
                              graph_.op(node).name(), graph_.scope(node).empty() ? "" : " @",
                              graph_.scope(node), d.message);
    }
    return failure;
  };
  Result<Factors> factors = FactorsOf(node);
  if (!factors.ok()) return named(std::move(factors).failure());
  Types results = ResultTypes(graph_, node);
  std::vector<Type> types;
  for (const Operand& operand : operands)
    types.push_back(operand.value ? graph_.types()[graph_.type(operand.value)] : Type());
  PlacingRequest request{.factors = &*factors, .operands = {}, .results = &results, .local = local};
  for (size_t i = 0; i < operands.size(); ++i) {
    request.operands.push_back({&types[i], graph_.placements()[operands[i].placement],
                                operands[i].is_free, operands[i].is_zero});
  }
  if (goal != PlacementTable::kReplicated) request.goal = &graph_.placements()[goal];
  std::vector<Placement> wanted_results;
  if (wanted) {
    for (PlacementId p : *wanted) wanted_results.push_back(graph_.placements()[p]);
    request.wanted_results = &wanted_results;
  }
  Result<NodePlacing> placed = PlaceNode(request, mesh_);
  if (!placed.ok()) return named(std::move(placed).failure());
  return &known_.Add(key_, *std::move(placed));
}

}  // namespace heddle::compile
