// From a captured graph and a plan to the graph of one rank, as pipelines.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

// Placements and redistributions: the graph stays global. `plan` is the text of a plan, as its author wrote it, so that
// messages point into it.
std::string PlanningPipeline(std::string_view plan);
// Collectives and local sizes.
std::string LoweringPipeline(bool reduce_first);

}  // namespace heddle
