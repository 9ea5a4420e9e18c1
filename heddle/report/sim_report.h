// Results of a simulation as text, as JSON, and as a list of events.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "heddle/price/sim/simulate.h"

namespace heddle {

// A summary for terminals with bars. `color` highlights exposed time.
std::string FormatSimulation(const Module& module, const Graph& graph,
                             const price::CostModel& model, const price::Simulation& simulation,
                             bool color);
nlohmann::ordered_json ToJson(const Module& module, const Graph& graph,
                              const price::CostModel& model, const price::Simulation& simulation);
// All timed work, in order of its begin.
std::string FormatTimeline(const Graph& graph, const price::Simulation& simulation);

}  // namespace heddle
