// Heddle's own model of collectives: the fastest protocol's latency, and the bytes that cross the
// slowest links.
//
// Time grows with the bytes and is never below the wire time. An all-reduce is never faster than an
// all-gather or a reduce-scatter of its bytes.
#pragma once

#include "heddle/core/base/units.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/price/cost/cluster/cluster.h"
#include "heddle/price/cost/comm/group.h"

namespace heddle::price {

// `bytes` as NCCL counts them: the output of an all-gather, the input of any other collective.
Nanos NativeTime(CollectiveKind kind, Bytes bytes, const GroupShape& group, const Cluster& cluster);

}  // namespace heddle::price
