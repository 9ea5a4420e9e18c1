#include "heddle/passes/parallel/inserter.h"

#include "heddle/ops/ops.h"

namespace heddle {

ValueId NodeInserter::Add(OpId op, std::string_view name, const std::vector<ValueId>& operands,
                          const Attrs& attrs, TypeId type, PlacementId placement) {
  ResultSpec result{type, name, placement};
  NodeSpec spec{.op = op,
                .operands = operands,
                .attrs = graph_.InternAttrs(attrs),
                .results = {&result, 1},
                .scope = at_ ? graph_[at_].scope : ScopeId(),
                .phase = at_ ? graph_[at_].phase : Phase::kForward};
  NodeId node = !behind_ ? rewriter_.InsertBefore(at_, spec)
                : at_    ? rewriter_.InsertAfter(at_, spec)
                         : rewriter_.InsertFirst(spec);
  return graph_[node].first_result;
}

ValueId RedistributionInserter::Make(NodeInserter at, ValueId v, PlacementId target,
                                     const Purpose& purpose) {
  auto [known, added] = known_.try_emplace(
      {v, target, purpose.why, std::string(purpose.unit), purpose.average, purpose.scale});
  if (!added) return known->second;
  Attrs attrs;
  attrs.Set("why", purpose.why);
  if (!purpose.unit.empty()) attrs.Set("unit", std::string(purpose.unit));
  if (purpose.average) attrs.Set("average", true);
  if (purpose.scale != 1.0) attrs.Set("scale", purpose.scale);
  return known->second =
             at.Add(op::shard_redistribute, Name(purpose.why), {v}, attrs, graph_.type(v), target);
}

ValueId RedistributionInserter::Before(NodeId reader, ValueId v, PlacementId target,
                                       const Purpose& purpose) {
  return Make(NodeInserter(graph_, rewriter_, reader), v, target, purpose);
}

ValueId RedistributionInserter::Behind(ValueId v, PlacementId target, const Purpose& purpose) {
  return Make(NodeInserter::Behind(graph_, rewriter_, v), v, target, purpose);
}

}  // namespace heddle
