#include "heddle/budget/path_bound.h"

#include <algorithm>

#include "heddle/passes/memory/recompute.h"

namespace heddle {
namespace {

constexpr Nanos kNever{-1};

}  // namespace

PathBound::PathBound(const Graph& graph, const Weights& weights, const RunTimes& times)
    : graph_(graph), weights_(weights), times_(times), runs_(graph.node_count()) {}

Nanos PathBound::ReadyFor(std::span<const ValueId> operands, bool behind) const {
  Nanos ready;
  for (ValueId v : operands) {
    if (!v) continue;
    bool again = behind && again_[v.index()] != kNever;
    ready = std::max(ready, again ? again_[v.index()] : ready_[v.index()]);
  }
  return ready;
}

// When the results are there.
Nanos PathBound::Run(NodeId node, std::span<const ValueId> operands, bool behind) {
  Nanos ready = ReadyFor(operands, behind);
  if (NodeId launch = LaunchOf(graph_, node)) return ready + times_.collective[launch.index()];
  Nanos takes = times_.once[node.index()];
  // What takes no time holds nothing up.
  if (takes == Nanos{}) return ready;
  clock_ = std::max(clock_, ready) + takes;
  return clock_;
}

void PathBound::RunAgain(ValueId v, const Marks& marks) {
  if (!v || marks[v.index()] != Keep::kPreferRecompute || again_[v.index()] != kNever) return;
  NodeId node = graph_[v].producer;
  std::span<const ValueId> operands = NeededAgain(graph_, node);
  for (ValueId needed : operands) RunAgain(needed, marks);
  Nanos ready = Run(node, operands, /*behind=*/true);
  for (ValueId result : graph_.results(node)) {
    if (marks[result.index()] == Keep::kPreferRecompute) again_[result.index()] = ready;
  }
}

// From the last to the first: what is kept runs, and what it is made of.
void PathBound::FindRuns(const Marks& marks) {
  for (size_t n = graph_.node_count(); n-- > 0;) {
    NodeId node{n};
    bool runs = !times_.only_for_backward[n];
    for (ValueId v : graph_.results(node))
      runs = runs || needed_[v.index()] || marks[v.index()] == Keep::kMustSave;
    runs_[n] = runs;
    if (!runs || graph_[node].phase != Phase::kForward) continue;
    for (ValueId v : graph_.operands(node)) {
      if (v) needed_[v.index()] = true;
    }
  }
}

Nanos PathBound::Of(const Marks& marks) {
  needed_.assign(graph_.value_count(), false);
  FindRuns(marks);
  clock_ = {};
  ready_.assign(graph_.value_count(), Nanos{});
  again_.assign(graph_.value_count(), kNever);
  Nanos end;
  for (NodeId node : graph_.nodes()) {
    if (!runs_[node.index()]) continue;
    bool behind = graph_[node].phase != Phase::kForward;
    std::span<const ValueId> operands = NeededAgain(graph_, node);
    if (behind) {
      for (ValueId v : graph_.operands(node)) RunAgain(v, marks);
    }
    Nanos ready = Run(node, operands, behind);
    for (ValueId result : graph_.results(node)) {
      // Passes gather weights when they like.
      ready_[result.index()] = weights_.is_weight(result) ? Nanos{} : ready;
    }
    end = std::max({end, clock_, ready});
  }
  return end;
}

}  // namespace heddle
