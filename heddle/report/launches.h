// Collectives and copies of a simulated step: their times, and sums by purpose or by unit.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/core/base/clock.h"
#include "heddle/price/sim/simulate.h"

namespace heddle {

// Facts that collectives of a group share. Sorting by them gives the order of execution.
struct Purpose {
  Phase phase = Phase::kForward;
  // `all_gather`
  std::string kind;
  // `dp`; `unshard`; empty if the op has none.
  std::string over;
  std::string why;
  // The unit of parameters; the scope of a collective for other tensors.
  std::string unit;

  auto operator<=>(const Purpose&) const = default;
};

struct LaunchSums {
  int64_t count = 0;
  int64_t tensors = 0;
  // For each launch, the larger of its inputs and outputs.
  Bytes bytes;
  Nanos time;
  Nanos exposed;
  std::array<Nanos, price::kReasonCount> by_reason{};

  LaunchSums& operator+=(const LaunchSums& other);
};

struct Launch {
  Purpose purpose;
  // The figures of this launch.
  LaunchSums sums;
};

// Indexed by collective of the timeline.
std::vector<Launch> FindLaunches(const Module& module, const Graph& graph,
                                 const price::Simulation& s);

using LaunchGroups = std::map<Purpose, LaunchSums>;
// Sums of all units, or by unit.
LaunchGroups GroupByPurpose(const std::vector<Launch>& launches);
LaunchGroups GroupByUnit(const std::vector<Launch>& launches);

// `schedule 3.20 ms, order 800.00 us`, the largest first.
std::string FormatReasons(const std::array<Nanos, price::kReasonCount>& by_reason);
// The keys of a collective in the JSON of `heddle sim`.
nlohmann::ordered_json ToJson(const Purpose& purpose, const LaunchSums& sums);

// The name of a node in reports: `%y`, or the op of a node without results.
std::string NameOf(const Graph& graph, NodeId id);
// The op, or the name of an unknown op.
std::string_view OpName(const Graph& graph, NodeId id);
// The name of the largest lower bound.
std::string_view NameOfBest(const price::LowerBounds& bounds);

}  // namespace heddle
