// PathBound: what a step takes at least, whoever schedules its collectives.
//
// Compute runs in the order of the graph, and recomputed nodes in front of their first readers. A collective begins as soon as its operands
// are there, has its links to itself, and slows nothing down. So whatever pipeline keeps the order of what computes is not faster; and what
// is recomputed in addition makes the bound no smaller.
#pragma once

#include <vector>

#include "heddle/budget/levels.h"

namespace heddle {

class PathBound {
 public:
  // All outlive this.
  PathBound(const Graph& graph, const Weights& weights, const RunTimes& times);

  // `marks` are those of a search. What has none yet is kept, unless forward would make it for backward alone: then it counts nowhere.
  Nanos Of(const Marks& marks);

 private:
  // When a value that `node`, or its copy, reads is there.
  Nanos ReadyFor(std::span<const ValueId> operands, bool behind) const;
  void RunAgain(ValueId v, const Marks& marks);
  void FindRuns(const Marks& marks);
  Nanos Run(NodeId node, std::span<const ValueId> operands, bool behind);

  const Graph& graph_;
  const Weights& weights_;
  const RunTimes& times_;
  // By node: forward, or what is behind it, runs it for certain. By value: what forward runs for certain reads it.
  std::vector<bool> runs_;
  std::vector<bool> needed_;
  // When the compute stream is free.
  Nanos clock_;
  // By value: when it is there, as forward made it; and when it was made again, -1 where it was not.
  std::vector<Nanos> ready_;
  std::vector<Nanos> again_;
};

}  // namespace heddle
