// The result of `heddle verify` as text and JSON.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "heddle/api/verification.h"

namespace heddle {

// Describes the comparison. A line for each step and the conclusion follow.
std::string FormatHead(const VerifiedJob& job);
std::string FormatStep(const VerifiedJob& job, const run::StepRow& row);
std::string FormatEnd(const VerifiedJob& job, const run::VerifyReport& report);
nlohmann::ordered_json ToJson(const VerifiedJob& job, const run::VerifyReport& report);

}  // namespace heddle
