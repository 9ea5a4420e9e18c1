// A hash of everything in a module except the names of its values. Two modules with the same hash
// do the same work in the same order for the same stated purposes. It does not depend on the order
// in which tables were filled.
#pragma once

#include "heddle/core/base/hash.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

Hash128 StructuralHash(const Graph& graph);
Hash128 StructuralHash(const Module& module);

}  // namespace heddle
