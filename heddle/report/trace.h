// Timelines as Chrome trace events, for Perfetto (ui.perfetto.dev) and chrome://tracing.
#pragma once

#include <string>
#include <vector>

#include "heddle/price/sim/simulate.h"

namespace heddle {

struct TracedGraph {
  const Graph* graph;
  const price::Simulation* simulation;
};
// One process per graph, one thread per stream, and a counter for memory. Times are in
// microseconds.
std::string FormatTrace(const Module& module, const std::vector<TracedGraph>& graphs);

}  // namespace heddle
