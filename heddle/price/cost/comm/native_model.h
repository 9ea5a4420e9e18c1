// Heddle's own model of collectives: the fastest protocol's latency, and the bytes that must cross the slowest links.
//
// It grows with the bytes, never beats the wire, and an all-reduce never beats an all-gather or a reduce-scatter of its bytes.
#pragma once

#include "heddle/core/base/units.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/price/cost/cluster/cluster.h"
#include "heddle/price/cost/comm/group.h"

namespace heddle::price {

Nanos NativeTime(CollectiveKind kind, Bytes bytes, const GroupShape& group, const Cluster& cluster);

}  // namespace heddle::price
