// CheckSchedule: that a graph is another one scheduled anew, and keeps a cap on memory.
//
// It shares nothing with what schedules: it compares two graphs by the names of their values, and counts memory by itself.
#pragma once

#include "heddle/compile/passes/overlap/overlap.h"

namespace heddle::compile {

// Nothing is lost or doubled; every node reads what it read, after it was made and before it is overwritten; every collective is
// waited for once, behind its start; random numbers are drawn in the same order; matrix products and attention keep their order
// unless all compute is free; at no node is more alive than `cap`. Several collectives may have become one, which has the tensors
// of all.
Status CheckSchedule(const Graph& before, const Graph& after, Bytes cap,
                     const price::MemoryRules& rules, Freedom freedom);

}  // namespace heddle::compile
