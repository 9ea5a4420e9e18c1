// tensor: ranks share heads, hidden units and the vocabulary and, with sequence parallelism,
// positions between blocks.
#include <algorithm>

#include "heddle/compile/plan/patterns.h"
#include "heddle/compile/plan/presets/presets.h"

namespace heddle::compile {
namespace {

std::optional<BoundaryPlacement> Boundary(const PlanDraft& draft, Flow flow, AxisId axis) {
  if (flow == Flow::kNone) return std::nullopt;
  BoundaryPlacement out{{}, 3};
  out.placement.splits = {draft.data, draft.context, {}};
  if (flow == Flow::kResidual && draft.options.sequence_parallel) out.placement.splits[1].Add(axis);
  if (flow == Flow::kLogits && draft.options.split_loss) out.placement.splits[2] = Axes(axis);
  out.placement.Normalize();
  return out;
}

// Whether the parameter belongs to a layer in which each rank has its own tokens over this axis,
// too. Such ranks share only experts.
bool HasOwnTokens(const PlanDraft& draft, const PlanParam& param, AxisId axis) {
  if (!draft.experts.contains(axis)) return false;
  return std::ranges::any_of(draft.rules.layers, [&](const LayerRule& rule) {
    return rule.own_tokens && MatchesPattern(rule.pattern + ".**", param.pattern);
  });
}

void Tensor(PlanDraft& draft, AxisId axis) {
  for (PlanParam& param : draft.plan.params) {
    if (HasOwnTokens(draft, param, axis)) continue;
    for (const WeightRule& rule : draft.rules.weights) {
      if (rule.dim >= param.compute.splits.size() || !MatchesPattern(rule.pattern, param.pattern))
        continue;
      param.compute.splits[rule.dim].Add(axis);
      param.store.splits[rule.dim].Add(axis);
    }
  }
  for (size_t i = 0; i < draft.rules.layers.size(); ++i) {
    const LayerRule& rule = draft.rules.layers[i];
    PlanModule& module = draft.plan.modules[i];
    module.in = Boundary(draft, rule.in, axis);
    module.out = Boundary(draft, rule.out, axis);
    if (rule.own_tokens && draft.experts.contains(axis)) module.in = OwnTokens(draft, axis);
    module.decomposes_log_softmax = rule.why == Why::kLoss && draft.options.split_loss;
  }
}

}  // namespace

HEDDLE_DEFINE_PRESET(tensor){
    .name = "tensor",
    .role = AxisRole::kTensor,
    .degree_flag = "tensor_parallel_degree",
    .help = "ranks that shard heads, hidden units and the vocabulary (tensor parallelism)",
    .apply = Tensor,
};

}  // namespace heddle::compile
