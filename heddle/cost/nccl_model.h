// The time that NCCL 2.27 would estimate for a collective: its tuner's formulas, with tables and corrections that were measured on
// H100 nodes with NVSwitch (docs/cost.md). Faithful to that model, faults included: an all-reduce may be cheaper than its halves.
#pragma once

#include <cstdint>

#include "heddle/base/units.h"
#include "heddle/cost/collective.h"
#include "heddle/cost/group.h"

namespace heddle {

struct NcclTopology {
  enum class Architecture : uint8_t { kAmpere, kHopper, kBlackwell };
  Architecture architecture = Architecture::kHopper;
  int64_t devices_per_node = 8;
  // Of one device, over all channels.
  double node_gb_per_s = 0;
  double network_gb_per_s = 0;
  int64_t channels = 16;
  // Devices of a node are joined by a switch that takes part in reductions.
  bool nvswitch = false;
};

// `bytes` as NCCL counts them: CountedBytes() of collective.h.
Nanos NcclTime(CollectiveKind kind, Bytes bytes, const GroupShape& group,
               const NcclTopology& topology);

}  // namespace heddle
