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

// The rows of a weight on a tensor-parallel rank; 0 if the graph lacks it.
int64_t RowsOf(const PlanDraft& draft, const std::string& pattern) {
  size_t param = 0;
  for (const Input& input : draft.graph.inputs()) {
    if (input.role != InputRole::kParam) continue;
    const Axes& split = draft.plan.params[param++].compute.splits[0];
    if (MatchesPattern(pattern, input.label))
      return draft.graph.types().dims(draft.graph.type(input.value))[0] /
             draft.plan.mesh.Size(split);
  }
  return 0;
}

void GatherLatents(PlanDraft& draft) {
  const LatentRule& rule = *draft.rules.latents;
  if (RowsOf(draft, rule.narrow) >= RowsOf(draft, rule.wide)) return;
  for (const LatentRule::Reader& reader : rule.readers) {
    PlanModule module{.pattern = reader.pattern, .why = Why::kContext};
    module.in = BoundaryPlacement{{}, reader.rank};
    module.in->placement.splits.resize(reader.rank);
    module.in->placement.splits[0] = draft.data;
    draft.plan.modules.push_back(std::move(module));
  }
}

void Context(PlanDraft& draft, AxisId) {
  SplitPositions(draft);
  // In a ring, keys and values travel as they are.
  bool gathers = !draft.options.context_heads && !draft.options.context_ring;
  if (draft.rules.latents && gathers) GatherLatents(draft);
  for (size_t i = 0; i < draft.rules.layers.size(); ++i) {
    if (!draft.rules.layers[i].mixes_positions) continue;
    draft.plan.modules[i].context = draft.context;
    draft.plan.modules[i].context_heads = draft.options.context_heads;
    draft.plan.modules[i].context_ring = draft.options.context_ring;
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
