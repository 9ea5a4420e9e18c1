// The critical path: the chain of kernels and collectives that fills the whole step, each beginning when the one before ends.
#pragma once

#include <vector>

#include "heddle/price/sim/timeline/timeline.h"

namespace heddle::price {

struct PathStep {
  NodeId node;
  Nanos begin;
  Nanos end;
  // On the stream of a collective; otherwise on the compute stream.
  bool collective = false;
};

struct CriticalPath {
  // From the first node to the makespan, without gaps.
  std::vector<PathStep> steps;
  Nanos compute;
  Nanos collective;
};

CriticalPath FindCriticalPath(const SimGraph& graph, const Timeline& timeline);

}  // namespace heddle::price
