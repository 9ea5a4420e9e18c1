// A hash of everything in a module but the names of its values: two modules with one hash do the same, in the same
// order, for the same stated purposes. It does not depend on how or in which order tables were filled.
#pragma once

#include "heddle/core/base/hash.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

Hash128 StructuralHash(const Graph& graph);
Hash128 StructuralHash(const Module& module);

}  // namespace heddle
