#include "heddle/compile/passes/parallel/redistribute/redistributor.h"

#include "heddle/core/ops/ops.h"

namespace heddle::compile {

ValueId Redistributor::Redistribute(Place at, ValueId v, PlacementId target,
                                    const Purpose& purpose) {
  auto [known, added] = known_.try_emplace({v, target, purpose});
  if (!added) return known->second;
  ++redistributions_;
  Attrs attrs;
  attrs.Set("why", purpose.why);
  if (!purpose.unit.empty()) attrs.Set("unit", purpose.unit);
  if (purpose.average) attrs.Set("average", true);
  if (purpose.scale != 1.0) attrs.Set("scale", purpose.scale);
  return known->second =
             Add(at, op::shard_redistribute, Name(purpose.why), {v}, attrs, graph_.type(v), target);
}

void Redistributor::Learn(NodeId redistribution) {
  const Attrs& attrs = graph_.attrs(redistribution);
  Purpose purpose{.why = std::get<Why>(*attrs.Find("why")),
                  .average = attrs.Find("average") != nullptr};
  if (const AttrValue* unit = attrs.Find("unit")) purpose.unit = std::get<std::string>(*unit);
  if (const AttrValue* scale = attrs.Find("scale")) purpose.scale = std::get<double>(*scale);
  ValueId from = rewriter_.Resolve(graph_.operands(redistribution)[0]);
  ValueId to = graph_[redistribution].first_result;
  auto [known, added] = known_.try_emplace({from, graph_[to].placement, purpose}, to);
  if (added) return;
  rewriter_.ReplaceValue(to, known->second);
  rewriter_.Erase(redistribution);
}

}  // namespace heddle::compile
