// shard: ranks with parts of the parameters and parts of the batch (FSDP).
#include "heddle/compile/plan/presets/presets.h"

namespace heddle::compile {
namespace {

// If there are more ranks than experts, stacks of experts are split inside each expert.
size_t ShardDim(std::span<const Dim> dims, int64_t ranks) {
  return dims.size() == 3 && ranks > dims[0] ? 1 : 0;
}

}  // namespace

void ShardParams(PlanDraft& draft) {
  const Mesh& mesh = draft.plan.mesh;
  size_t next = 0;
  for (const Input& input : draft.graph.inputs()) {
    if (input.role != InputRole::kParam) continue;
    PlanParam& param = draft.plan.params[next++];
    std::span<const Dim> dims = draft.graph.types().dims(draft.graph.type(input.value));
    if (dims.empty()) continue;
    // Ranks that share experts already have parts of them.
    Axes over = draft.sharding;
    int64_t ranks = mesh.Size(over);
    if (IsShared(draft, param)) {
      over = {};
      for (AxisId axis : draft.sharding) {
        if (!draft.experts.contains(axis)) over.Add(axis);
      }
      ranks = mesh.Size(draft.experts) * mesh.Size(over);
    }
    // Splits the parts of other presets further.
    for (AxisId axis : over) param.store.splits[ShardDim(dims, ranks)].Add(axis);
  }
}

HEDDLE_DEFINE_PRESET(shard){
    .name = "shard",
    .role = AxisRole::kShard,
    .degree_flag = "data_parallel_shard_degree",
    .help = "ranks that shard the parameters and the batch (FSDP)",
    .splits_batch = true,
    .splits_params = true,
    .apply = [](PlanDraft& draft, AxisId) { ShardParams(draft); },
};

}  // namespace heddle::compile
