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
                .scope = graph_[at_].scope,
                .phase = graph_[at_].phase};
  return graph_[rewriter_.InsertBefore(at_, spec)].first_result;
}

NodeId InsertBehind(Graph& graph, Rewriter& rewriter, ValueId v, const NodeSpec& spec) {
  NodeId producer = graph[v].producer;
  return producer ? rewriter.InsertAfter(producer, spec) : rewriter.InsertFirst(spec);
}

template <typename Insert>
ValueId RedistributionInserter::Make(ValueId v, PlacementId target, const Purpose& purpose,
                                     NodeId like, const Insert& insert) {
  auto [at, added] = known_.try_emplace({v, target});
  if (!added) return at->second;
  Attrs attrs;
  attrs.Set("why", purpose.why);
  if (!purpose.unit.empty()) attrs.Set("unit", std::string(purpose.unit));
  if (purpose.average) attrs.Set("average", true);
  if (purpose.scale != 1.0) attrs.Set("scale", purpose.scale);
  ResultSpec result{graph_.type(v), Name(purpose.why), target};
  NodeSpec spec{.op = op::shard_redistribute,
                .operands = {&v, 1},
                .attrs = graph_.InternAttrs(attrs),
                .results = {&result, 1},
                .scope = like ? graph_[like].scope : ScopeId(),
                .phase = like ? graph_[like].phase : Phase::kForward};
  return at->second = graph_[insert(spec)].first_result;
}

ValueId RedistributionInserter::Before(NodeId reader, ValueId v, PlacementId target,
                                       const Purpose& purpose) {
  return Make(v, target, purpose, reader,
              [&](const NodeSpec& spec) { return rewriter_.InsertBefore(reader, spec); });
}

ValueId RedistributionInserter::Behind(ValueId v, PlacementId target, const Purpose& purpose) {
  return Make(v, target, purpose, graph_[v].producer,
              [&](const NodeSpec& spec) { return InsertBehind(graph_, rewriter_, v, spec); });
}

}  // namespace heddle
