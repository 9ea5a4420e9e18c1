// The programs of a module: the graphs that its ranks run.
#pragma once

#include "heddle/core/ir/graph.h"

namespace heddle {

// The program of a rank. Today all ranks run the first graph.
inline const Graph& ProgramOf(const Module& module, int64_t /*rank*/) { return module.graphs[0]; }

// The program that all ranks share, for code that describes, plans or checks a whole step.
inline const Graph& SharedProgram(const Module& module) { return module.graphs[0]; }
inline Graph& SharedProgram(Module& module) { return module.graphs[0]; }

}  // namespace heddle
