// Log-softmax in smaller ops, each of which can be split over the classes.
#pragma once

#include "heddle/ir/rewriter.h"
#include "heddle/passes/parallel/region.h"

namespace heddle {

// Writes `_log_softmax` and its backward out in the modules that the plan says, if the mesh has more than one rank.
Changed WriteOut(Graph& graph, const Regions& regions, const Mesh& mesh);

}  // namespace heddle
