// Ops in smaller ones that can be split: log-softmax over the classes, and the norm of all gradients.
#pragma once

#include "heddle/pass/pass.h"
#include "heddle/passes/parallel/region.h"

namespace heddle {

// Writes `_log_softmax` and its backward out in the modules that the plan says; and a norm of norms, as clipping takes it, as the
// root of one sum of squares, so that one number is reduced over ranks. Nothing on a mesh of one rank.
Changed WriteOut(Graph& graph, const Regions& regions, const Mesh& mesh, PassContext& context);

}  // namespace heddle
