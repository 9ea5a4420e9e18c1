// Which node was the first to go wrong: runs more steps of a session and looks at the values of every node.
#pragma once

#include <optional>
#include <string>

#include "heddle/run/train/session.h"
#include "heddle/run/verify/compare.h"

namespace heddle::run {

struct NodeFinding {
  int64_t step = 0;
  int64_t rank = 0;
  // As text.
  std::string node;
  // What is odd about its value, for people.
  std::string what;
};

// The first node with a NaN in its result, up to step `last`; if there is none, the first with an infinity. The learning rate is asked
// for by step.
Result<std::optional<NodeFinding>> FirstNotFinite(Session& session,
                                                  const std::function<double(int64_t)>& lr,
                                                  int64_t last);

// The first node of `session` whose value is another than the one of the same name in `other`.
Result<std::optional<NodeFinding>> FirstAgainstGraph(Session& session, Session& other, double lr);

// Against a run without a graph. All tensors that it computes are remembered by their content. Back from what differs, through
// nodes whose values the other run never had: the first of these whose operands it had.
Result<std::optional<NodeFinding>> FirstAgainstEager(Session& session, TrainingRun& other,
                                                     double lr, size_t params,
                                                     const Difference& difference);

}  // namespace heddle::run
