#include "heddle/core/ir/edit/inserter.h"

namespace heddle {

ValueId Inserter::Add(Place at, OpId op, std::string_view name,
                      const std::vector<ValueId>& operands, const Attrs& attrs, TypeId type,
                      PlacementId placement) {
  const NodeId like = at.like ? at.like : at.node;
  ResultSpec result{type, name, placement};
  NodeSpec spec{.op = op,
                .operands = operands,
                .attrs = graph_.InternAttrs(attrs),
                .results = {&result, 1},
                .scope = like ? graph_[like].scope : ScopeId(),
                .phase = at.node ? graph_[at.node].phase : Phase::kForward};
  NodeId node = !at.after ? rewriter_.InsertBefore(at.node, spec)
                : at.node ? rewriter_.InsertAfter(at.node, spec)
                          : rewriter_.InsertFirst(spec);
  return graph_[node].first_result;
}

}  // namespace heddle
