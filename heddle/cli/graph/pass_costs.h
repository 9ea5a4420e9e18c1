// The effect of each pass of a pipeline on launches and memory.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "heddle/compile/compile.h"

namespace heddle {

// A table of the passes that changed the graph, after an empty line. Empty if no pass did.
std::string FormatCosts(const compile::CompileReport& report);
nlohmann::ordered_json CostsToJson(const compile::CompileReport& report);

}  // namespace heddle
