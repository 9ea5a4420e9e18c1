// Why collectives are exposed.
#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "heddle/core/ir/graph.h"
#include "heddle/price/sim/timeline/timeline.h"

namespace heddle::price {

enum class Reason : uint8_t {
  // Its inputs were not there earlier, and its results were needed then.
  kDependence,
  // It could have been launched earlier, or waited for later. What depends on parameters alone can be computed at any time.
  kSchedule,
  // So could it, but more would then be alive than the cap allows.
  kMemory,
  // It stood behind others of its communicator.
  kOrder,
  // It shared its links with others.
  kLink,
};
inline constexpr size_t kReasonCount = 5;
std::string_view Name(Reason reason);

// The exposed time of one collective, by reason.
struct Exposure {
  std::array<Nanos, kReasonCount> by_reason{};
  // The largest part; the first of equal ones.
  Reason main() const;
};

// For each collective of the timeline. What sharing links cost comes off first, then what the queue cost, then as much
// compute as start and wait could move across; the rest is dependence. `cap` is a bound on memory that the schedule keeps, if any.
std::vector<Exposure> ExplainExposure(const Graph& graph, const SimGraph& sim,
                                      const Timeline& timeline, std::optional<Bytes> cap);

}  // namespace heddle::price
