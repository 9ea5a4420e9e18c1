// The summary of a step as text and JSON.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "heddle/price/cost/step_summary.h"

namespace heddle {

std::string FormatSummary(const price::StepSummary& summary);
nlohmann::ordered_json ToJson(const price::StepSummary& summary);

}  // namespace heddle
