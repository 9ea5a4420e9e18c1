// Collectives and copies of a simulated step: what each of them did, and sums of them by purpose or by unit.
#pragma once

#include <map>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/core/base/clock.h"
#include "heddle/price/sim/simulate.h"

namespace heddle {

// What collectives have in common. In this order a table reads in the order of execution.
struct Purpose {
  Phase phase = Phase::kForward;
  // `all_gather`
  std::string kind;
  // `dp`; `unshard`; empty where the op has none.
  std::string over;
  std::string why;
  // Of parameters; the scope of what serves none.
  std::string unit;

  auto operator<=>(const Purpose&) const = default;
};

struct LaunchSums {
  int64_t count = 0;
  int64_t tensors = 0;
  // For each launch the larger of what goes in and what comes out.
  Bytes bytes;
  Nanos time;
  Nanos exposed;
  std::array<Nanos, price::kReasonCount> by_reason{};

  LaunchSums& operator+=(const LaunchSums& other);
};

struct Launch {
  Purpose purpose;
  // Of this one.
  LaunchSums sums;
};

// By collective of the timeline.
std::vector<Launch> FindLaunches(const Module& module, const Graph& graph,
                                 const price::Simulation& s);

using LaunchGroups = std::map<Purpose, LaunchSums>;
// Units together, or apart.
LaunchGroups GroupByPurpose(const std::vector<Launch>& launches);
LaunchGroups GroupByUnit(const std::vector<Launch>& launches);

// `schedule 3.20 ms, order 800.00 us`, the largest first.
std::string FormatReasons(const std::array<Nanos, price::kReasonCount>& by_reason);
// The keys of a collective in the JSON of `heddle sim`.
nlohmann::ordered_json ToJson(const Purpose& purpose, const LaunchSums& sums);

// How reports name things.
// `%y`; the op of a node without results.
std::string NameOf(const Graph& graph, NodeId id);
// The op, also one that the table does not know.
std::string_view OpName(const Graph& graph, NodeId id);
// What the best of the bounds counts.
std::string_view NameOfBest(const price::LowerBounds& bounds);

}  // namespace heddle
