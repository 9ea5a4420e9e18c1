// Finds the first node that computes a wrong value: runs more steps and inspects the
// values of every node.
#pragma once

#include <optional>
#include <string>

#include "heddle/run/train/session.h"
#include "heddle/run/verify/compare.h"

namespace heddle::run {

struct NodeFinding {
  int64_t step = 0;
  int64_t rank = 0;
  // The node's text.
  std::string node;
  // Description of its wrong value.
  std::string what;
};

// Returns the first node with a NaN in its result, up to step `last`; if there is none, the first
// with an infinity. `lr` returns the learning rate of a step.
Result<std::optional<NodeFinding>> FirstNotFinite(GraphRun& run,
                                                  const std::function<double(int64_t)>& lr,
                                                  int64_t last);

// Returns the first node of `run` whose value differs from the value of the same name in
// `other`.
Result<std::optional<NodeFinding>> FirstAgainstGraph(GraphRun& run, GraphRun& other, double lr);

// Compares with a run without a graph. Records the content of all tensors that the other run
// computes. From the differing value, searches backwards through nodes whose values the other run
// never had. Returns the first of them whose operands it had.
Result<std::optional<NodeFinding>> FirstAgainstEager(GraphRun& run, TrainingRun& other, double lr,
                                                     size_t params, const Difference& difference);

}  // namespace heddle::run
