// The summary of a step as text and JSON.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "heddle/price/cost/step_summary.h"

namespace heddle {

std::string FormatSummary(const price::StepSummary& summary);
// A row for each coordinate of a pipeline.
std::string FormatCoordinates(const std::vector<price::StepSummary>& coordinates);
nlohmann::ordered_json ToJson(const price::StepSummary& summary);

}  // namespace heddle
