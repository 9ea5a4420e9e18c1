// Decomposes log-softmax over classes into smaller ops that can be split.
#pragma once

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/parallel/propagate/module_boundaries.h"

namespace heddle::compile {

// Decomposes `_log_softmax` and its backward in the modules for which the plan requests it. Does
// nothing on a mesh of one rank.
Changed DecomposeLogSoftmax(Graph& graph, const ModuleBoundaries& boundaries, const Mesh& mesh);

}  // namespace heddle::compile
