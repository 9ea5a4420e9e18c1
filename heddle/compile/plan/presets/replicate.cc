// replicate: ranks with copies of the parameters and parts of the batch (DDP; with shard, HSDP).
#include "heddle/compile/plan/presets/presets.h"

namespace heddle::compile {

HEDDLE_DEFINE_PRESET(replicate){
    .name = "replicate",
    .role = AxisRole::kReplicate,
    .degree_flag = "data_parallel_replicate_degree",
    .help = "ranks that replicate the parameters and shard the batch (DDP; with sharding, HSDP)",
    .splits_batch = true,
    // A draft begins with replicated parameters.
    .apply = [](PlanDraft&, AxisId) {},
};

}  // namespace heddle::compile
