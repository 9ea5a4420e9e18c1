// tensor: ranks that share heads, hidden units and the vocabulary; and, with sequence parallelism, positions between blocks.
#include "heddle/plan/patterns.h"
#include "heddle/plan/presets/presets.h"

namespace heddle {
namespace {

std::optional<BoundaryPlacement> Boundary(const PlanDraft& draft, Flow flow, AxisId axis) {
  if (flow == Flow::kNone) return std::nullopt;
  BoundaryPlacement out{{}, 3};
  out.placement.splits = {draft.data, {}, {}};
  if (flow == Flow::kResidual && draft.options.sequence_parallel)
    out.placement.splits[1] = Axes(axis);
  if (flow == Flow::kLogits && draft.options.split_loss) out.placement.splits[2] = Axes(axis);
  out.placement.Normalize();
  return out;
}

void Tensor(PlanDraft& draft, AxisId axis) {
  for (PlanParam& param : draft.plan.params) {
    for (const WeightRule& rule : draft.rules.weights) {
      if (rule.dim >= param.compute.splits.size() || !MatchesPattern(rule.pattern, param.pattern))
        continue;
      param.compute.splits[rule.dim].Add(axis);
      param.store.splits[rule.dim].Add(axis);
    }
  }
  for (size_t i = 0; i < draft.rules.layers.size(); ++i) {
    const LayerRule& rule = draft.rules.layers[i];
    PlanLayer& layer = draft.plan.layers[i];
    layer.in = Boundary(draft, rule.in, axis);
    layer.out = Boundary(draft, rule.out, axis);
    layer.write_out = rule.why == Why::kLoss && draft.options.split_loss;
  }
}

}  // namespace

HEDDLE_DEFINE_PRESET(tensor){
    .name = "tensor",
    .axis = "tp",
    .degree_flag = "tensor_parallel_degree",
    .help = "ranks that share heads, hidden units and the vocabulary",
    .apply = Tensor,
};

}  // namespace heddle
