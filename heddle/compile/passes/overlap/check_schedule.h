// CheckSchedule: checks that a graph is a schedule of another one, within a memory limit.
//
// It shares no code with the schedulers. It matches values of the two graphs by name, and counts
// memory itself.
#pragma once

#include "heddle/compile/passes/overlap/overlap.h"

namespace heddle::compile {

// Fails unless all of this holds. No node is lost or duplicated. Every node reads the same values,
// after they are computed and before they are overwritten. Every collective has one wait after its
// start. Random numbers are drawn in the same order. Matrix products and attention keep their
// order, unless all compute may move. Memory never exceeds `cap`. Several collectives may be merged
// into one that has all their tensors.
Status CheckSchedule(const Graph& before, const Graph& after, Bytes cap,
                     const price::MemoryRules& rules, Freedom freedom);

}  // namespace heddle::compile
