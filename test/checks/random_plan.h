// Random plans for random steps.
#pragma once

#include "heddle/compile/plan/plan.h"
#include "test/checks/random_graph.h"

namespace heddle {

// Places the batch tensors `x0`, `x1` and `ids`, and parameters `layers.*.w0`, `layers.*.w1` and so
// on. All but `ids` are matrices. The mesh has one to three axes with random splits. If the graph
// has a scope `layers.0`, it may get boundaries.
compile::Plan RandomPlan(Dice& dice, size_t params, bool has_layers);

}  // namespace heddle
