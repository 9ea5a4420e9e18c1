// context: ranks share the positions of every sequence. Causal attention gathers keys and values.
#include <algorithm>

#include "heddle/compile/plan/patterns.h"
#include "heddle/compile/plan/presets/presets.h"

namespace heddle::compile {
namespace {

void SplitPositions(PlanDraft& draft) {
  for (PlanInput& input : draft.plan.inputs) {
    input.placement.splits.resize(2);
    input.placement.splits[1] = draft.context;
    input.rank = 2;
  }
  // Positions of documents select rows of the whole rotation table.
  if (std::ranges::any_of(draft.graph.inputs(), [](const Input& input) {
        return input.role == InputRole::kBatch && input.label == "positions";
      }))
    return;
  Placement positions;
  positions.splits = {draft.context};
  for (const Input& input : draft.graph.inputs()) {
    for (const std::string& name : draft.rules.positions) {
      if (input.role == InputRole::kBuffer && input.label == name)
        draft.plan.inputs.push_back({name, positions, 1, 0});
    }
  }
}

void Context(PlanDraft& draft, AxisId) {
  SplitPositions(draft);
  for (size_t i = 0; i < draft.rules.layers.size(); ++i) {
    if (!draft.rules.layers[i].mixes_positions) continue;
    draft.plan.modules[i].context = draft.context;
    draft.plan.modules[i].context_heads = draft.options.context_heads;
  }
  // `shard` shards parameters over these axes, too, if it is used.
  if (!draft.options.axes.contains("shard")) ShardParams(draft);
}

}  // namespace

HEDDLE_DEFINE_PRESET(context){
    .name = "context",
    .role = AxisRole::kContext,
    .degree_flag = "context_parallel_degree",
    .help =
        "ranks that share the positions of every sequence, and shard the parameters (context "
        "parallelism)",
    .splits_params = true,
    .apply = Context,
};

}  // namespace heddle::compile
