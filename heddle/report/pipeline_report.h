// A simulated pipeline as text, as JSON, and as data of the report page.
#pragma once

#include <span>
#include <string>

#include <nlohmann/json_fwd.hpp>

#include "heddle/price/pipeline/pipeline_simulation.h"

namespace heddle {

// The step and its bound, and a row per coordinate. `simulations` are those of the module's graphs.
std::string FormatPipeline(const Module& module, std::span<const price::Simulation> simulations,
                           const price::PipelineSimulation& pipeline);
nlohmann::ordered_json ToJson(const Module& module, std::span<const price::Simulation> simulations,
                              const price::PipelineSimulation& pipeline);
// Rows of actions and bubbles by coordinate; times in nanoseconds.
std::string FormatPipelineData(const price::PipelineSimulation& pipeline);

}  // namespace heddle
