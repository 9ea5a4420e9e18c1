// What `heddle verify` found, for people and as JSON.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "heddle/api/verification.h"

namespace heddle {

// What is compared, then a line for each step, then what came out.
std::string FormatHead(const VerifiedJob& job);
std::string FormatStep(const VerifiedJob& job, const run::StepRow& row);
std::string FormatEnd(const VerifiedJob& job, const run::VerifyReport& report);
nlohmann::ordered_json ToJson(const VerifiedJob& job, const run::VerifyReport& report);

}  // namespace heddle
