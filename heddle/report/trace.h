// Timelines as Chrome's trace events, which Perfetto (ui.perfetto.dev) and chrome://tracing show.
#pragma once

#include <string>
#include <vector>

#include "heddle/price/sim/simulate.h"

namespace heddle {

struct TracedGraph {
  const Graph* graph;
  const price::Simulation* simulation;
};
// One process for each graph, one thread for each stream, and a counter for memory. Times are microseconds.
std::string FormatTrace(const Module& module, const std::vector<TracedGraph>& graphs);

}  // namespace heddle
