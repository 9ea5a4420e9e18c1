// The time that NCCL 2.27 would estimate for a collective: its tuner's formulas, with tables and corrections that were measured on
// H100 nodes with NVSwitch (docs/cost.md). Faithful to that model, faults included: an all-reduce may be cheaper than its halves.
#pragma once

#include <cstdint>

#include "heddle/core/base/units.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/price/cost/cluster/cluster.h"
#include "heddle/price/cost/comm/group.h"

namespace heddle::price {

// `bytes` as NCCL counts them: what an all-gather gives, what any other collective is given.
Nanos NcclTime(CollectiveKind kind, Bytes bytes, const GroupShape& group,
               const NcclTopology& topology);

}  // namespace heddle::price
