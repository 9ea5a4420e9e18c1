// Patterns of a plan against the names of a module: one that nothing matches is a mistake.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/base/result.h"
#include "heddle/ir/graph.h"
#include "heddle/passes/parallel/plan.h"

namespace heddle {

Status CheckPatterns(const Module& module, const Plan& plan);

// The module of a scope and those around it, from the outermost: `layers`, `layers.0`, `layers.0.attention`.
std::vector<std::string_view> ModulePaths(std::string_view scope);

}  // namespace heddle
