// The time that NCCL 2.27 estimates for a collective: its tuner's formulas, with tables and
// corrections measured on H100 nodes with NVSwitch (docs/cost-models.md). Reproduces that model,
// faults included: an all-reduce may be faster than its halves.
#pragma once

#include <cstdint>

#include "heddle/core/base/units.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/price/cost/cluster/cluster.h"
#include "heddle/price/cost/comm/group.h"

namespace heddle::price {

// `bytes` as NCCL counts them: the output of an all-gather, the input of any other collective.
Nanos NcclTime(CollectiveKind kind, Bytes bytes, const GroupShape& group,
               const NcclTopology& topology);

}  // namespace heddle::price
