// What each pass of a pipeline did to launches and memory, for people and programs.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "heddle/compile/compile.h"

namespace heddle {

// A table of the passes that changed the graph, with an empty line in front; empty if there are none.
std::string FormatCosts(const compile::CompileReport& report);
nlohmann::ordered_json CostsToJson(const compile::CompileReport& report);

}  // namespace heddle
