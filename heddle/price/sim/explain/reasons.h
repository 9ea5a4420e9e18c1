// Reasons for exposed collectives.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "heddle/core/ir/graph.h"
#include "heddle/price/sim/timeline/timeline.h"

namespace heddle::price {

// Why compute waited for a collective.
enum class Reason : uint8_t {
  // Its inputs were not ready earlier, and its results were needed then.
  kDependence,
  // It could be launched earlier, or waited for later. Values that depend only on parameters can be
  // computed at any time.
  kSchedule,
  // The same, but memory would exceed the cap.
  kMemory,
  // It waited for other collectives of its communicator.
  kOrder,
  // It shared its links with others.
  kLink,
  // The other coordinate of a transfer was not ready.
  kBubble,
  // A transfer was on its way.
  kHop,
};
inline constexpr size_t kReasonCount = 7;
std::string_view Name(Reason reason);

// The exposed time of one collective, by reason.
struct Exposure {
  std::array<Nanos, kReasonCount> by_reason{};
  // The largest part; the first if equal.
  Reason main() const;
};

// Explains each collective of the timeline. Transfers of a pipeline have bubbles, and hops for the
// time after both ends are ready. For the others, it subtracts the cost of shared links first, then
// of queueing, and then the compute that start and wait could move across. The rest is dependence.
// `cap` is the memory limit of the schedule, if any.
std::vector<Exposure> ExplainExposure(const Graph& graph, const SimGraph& sim,
                                      const Timeline& timeline, std::optional<Bytes> cap);

}  // namespace heddle::price
