// What a simulation found, for people, as JSON, and line by line.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "heddle/price/sim/simulate.h"

namespace heddle {

// A summary for terminals, with bars. `color` marks what is exposed.
std::string FormatSimulation(const Module& module, const Graph& graph,
                             const price::CostModel& model, const price::Simulation& simulation,
                             bool color);
nlohmann::ordered_json ToJson(const Module& module, const Graph& graph,
                              const price::CostModel& model, const price::Simulation& simulation);
// Everything that takes time, in the order in which it begins.
std::string FormatTimeline(const Graph& graph, const price::Simulation& simulation);

}  // namespace heddle
