// TimelineRules: how a timeline counts launches, packing and shared links.
//
// The defaults are Heddle's own rules. Measured costs may bring others (MeasuredCosts::rules).
#pragma once

#include <string_view>

#include "heddle/price/cost/cluster/rate.h"

namespace heddle::price {

struct TimelineRules {
  // Where collectives pack their inputs and unpack their results: on their own stream and after
  // the wait; by kernels on the compute stream, and only if they have several tensors; or nowhere.
  enum class Packing : uint8_t { kByCollective, kByKernels, kNone };

  // Whose rules they are, for reports. Empty for Heddle's own.
  std::string_view author;
  // Time of every node on the compute stream, and added to every collective on its own stream.
  Nanos launch;
  // Each result of a node with several results counts as a node.
  bool launch_per_result = false;
  // Concurrent transfers share links and slow down compute.
  bool contention = true;
  Packing packing = Packing::kByCollective;
  // Rate of copies. 0: the rate of the cluster's device.
  ByteRate copy_rate;

  bool operator==(const TimelineRules&) const = default;
};

// The rules of AutoParallel's overlap simulator: 1 us per node, and nothing is packed or shared.
inline constexpr TimelineRules kAutoParallelRules = {
    .author = "AutoParallel",
    .launch = Nanos{1000},
    .launch_per_result = true,
    .contention = false,
    .packing = TimelineRules::Packing::kNone,
    .copy_rate = {},
};

}  // namespace heddle::price
