// The critical path: a chain of kernels and collectives that fills the whole step. Each begins when
// the previous one ends.
#pragma once

#include <span>
#include <vector>

#include "heddle/core/analysis/transfers.h"
#include "heddle/price/sim/timeline/timeline.h"

namespace heddle::price {

// One kernel or collective of the path.
struct PathStep {
  NodeId node;
  Nanos begin;
  Nanos end;
  // Whether the step is on the stream of a collective; otherwise it is on the compute stream.
  bool collective = false;
  // The coordinate of a pipeline.
  size_t graph = 0;
};

struct CriticalPath {
  // From the first node to the makespan, without gaps.
  std::vector<PathStep> steps;
  Nanos compute;
  Nanos collective;
};

// `timeline` must be that of `graph`.
CriticalPath FindCriticalPath(const SimGraph& graph, const Timeline& timeline);

struct TimedGraph {
  const SimGraph* graph = nullptr;
  const Timeline* timeline = nullptr;
};
// The path of graphs that were simulated together. It may go from one to another with a transfer.
CriticalPath FindCriticalPath(std::span<const TimedGraph> graphs,
                              std::span<const TransferEnds> transfers);

}  // namespace heddle::price
