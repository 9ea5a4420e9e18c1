// From a captured graph and a plan to the graph of one rank, as pipelines.
#pragma once

#include <string>

#include "heddle/passes/parallel/plan.h"

namespace heddle {

// Placements and redistributions: the graph stays global.
std::string PlanningPipeline(const Plan& plan);
// Collectives and local sizes.
std::string LoweringPipeline(bool reduce_first);

}  // namespace heddle
