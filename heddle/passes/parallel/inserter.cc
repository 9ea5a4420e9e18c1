#include "heddle/passes/parallel/inserter.h"

#include "heddle/ops/ops.h"

namespace heddle {

ValueId Inserter::Add(Place at, OpId op, std::string_view name,
                      const std::vector<ValueId>& operands, const Attrs& attrs, TypeId type,
                      PlacementId placement) {
  ResultSpec result{type, name, placement};
  NodeSpec spec{.op = op,
                .operands = operands,
                .attrs = graph_.InternAttrs(attrs),
                .results = {&result, 1},
                .scope = at.node ? graph_[at.node].scope : ScopeId(),
                .phase = at.node ? graph_[at.node].phase : Phase::kForward};
  NodeId node = !at.behind ? rewriter_.InsertBefore(at.node, spec)
                : at.node  ? rewriter_.InsertAfter(at.node, spec)
                           : rewriter_.InsertFirst(spec);
  return graph_[node].first_result;
}

ValueId Inserter::Redistribute(Place at, ValueId v, PlacementId target, const Purpose& purpose) {
  auto [known, added] = known_.try_emplace({v, target, purpose});
  if (!added) return known->second;
  Attrs attrs;
  attrs.Set("why", purpose.why);
  if (!purpose.unit.empty()) attrs.Set("unit", purpose.unit);
  if (purpose.average) attrs.Set("average", true);
  if (purpose.scale != 1.0) attrs.Set("scale", purpose.scale);
  return known->second =
             Add(at, op::shard_redistribute, Name(purpose.why), {v}, attrs, graph_.type(v), target);
}

}  // namespace heddle
