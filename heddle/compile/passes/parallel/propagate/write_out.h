// Ops in smaller ones that can be split: log-softmax over the classes.
#pragma once

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/parallel/propagate/region.h"

namespace heddle::compile {

// Writes `_log_softmax` and its backward out in the layers that the plan says. Nothing on a mesh of one rank.
Changed WriteOut(Graph& graph, const Regions& regions, const Mesh& mesh);

}  // namespace heddle::compile
