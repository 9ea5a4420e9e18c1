#include "heddle/compile/passes/fsdp/backward_copies.h"

#include <algorithm>

#include "heddle/core/analysis/launch.h"

namespace heddle::compile {

BackwardCopies::BackwardCopies(Graph& graph, Rewriter& rewriter, IsMadeAgain again)
    : graph_(graph),
      rewriter_(rewriter),
      again_(std::move(again)),
      donations_(graph),
      copy_of_(graph.node_count()),
      state_(graph.value_count()) {}

Result<bool> BackwardCopies::Again(ValueId v) {
  if (!v || v.index() >= state_.size() || !graph_[v].producer || replaced_.contains(v.index()))
    return false;
  if (state_[v.index()] == State::kUnknown) {
    HEDDLE_TRY(bool again, again_(v));
    state_[v.index()] = again ? State::kAgain : State::kKept;
  }
  return state_[v.index()] == State::kAgain;
}

ValueId BackwardCopies::ResultOfCopy(ValueId v) const {
  NodeId producer = graph_[v].producer;
  return graph_.results(
      copy_of_[producer.index()])[v.index() - graph_[producer].first_result.index()];
}

ValueId BackwardCopies::Here(ValueId v) const {
  if (!v || v.index() >= state_.size()) return v;
  if (auto other = replaced_.find(v.index()); other != replaced_.end()) return other->second;
  NodeId producer = graph_[v].producer;
  bool copied = state_[v.index()] == State::kAgain && copy_of_[producer.index()];
  return copied ? ResultOfCopy(v) : v;
}

Result<std::vector<NodeId>> BackwardCopies::Missing(ValueId v) {
  std::vector<NodeId> missing;
  auto find = [&](NodeId node) {
    if (copy_of_[node.index()]) return false;
    // Marks it as found. The copy itself is made later.
    copy_of_[node.index()] = node;
    missing.push_back(node);
    return true;
  };
  std::vector<ValueId> open{v};
  while (!open.empty()) {
    ValueId needed = open.back();
    open.pop_back();
    HEDDLE_TRY(bool again, Again(needed));
    NodeId producer = graph_[needed].producer;
    if (!again || !find(producer)) continue;
    NodeId launch = LaunchOf(graph_, producer);
    if (launch) find(launch);
    for (ValueId operand : graph_.operands(launch ? launch : producer)) {
      if (operand) open.push_back(operand);
    }
  }
  std::ranges::sort(missing);
  return missing;
}

NodeId BackwardCopies::TakenBefore(const std::vector<NodeId>& nodes, NodeId node) const {
  if (!donations_.any()) return {};
  for (NodeId id : nodes) {
    for (ValueId v : graph_.operands(id)) {
      NodeId taker = v ? donations_.taker(v) : NodeId();
      if (taker && taker < node) return taker;
    }
  }
  return {};
}

Result<NodeId> BackwardCopies::CopyBefore(NodeId node, ValueId v) {
  HEDDLE_TRY(bool again, Again(v));
  if (!again || copy_of_[graph_[v].producer.index()]) return NodeId();
  HEDDLE_TRY(std::vector<NodeId> missing, Missing(v));
  if (NodeId taker = TakenBefore(missing, node)) {
    for (NodeId original : missing) copy_of_[original.index()] = NodeId();
    return taker;
  }
  for (NodeId original : missing) {
    NodeId copy = rewriter_.CloneBefore(node, original, graph_[node].phase);
    copy_of_[original.index()] = copy;
    const bool waits = static_cast<bool>(LaunchOf(graph_, original));
    for (size_t i = 0; i < graph_.operands(copy).size(); ++i) {
      ValueId read = graph_.operands(copy)[i];
      ValueId here = waits ? ResultOfCopy(read) : Here(read);
      if (here != read) rewriter_.SetOperand(copy, i, here);
    }
    copies_.emplace_back(original, copy);
  }
  return NodeId();
}

}  // namespace heddle::compile
