// Facts that the regions of a graph state about the nodes in its scopes.
#pragma once

#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle::compile {

class ScopeFacts {
 public:
  explicit ScopeFacts(const Graph& graph);

  // The axes over which every rank works on its own part, from all regions around the node. The
  // optimizer works on the parameters of a module, not on its rows, so it has none.
  Axes local(const Node& node) const {
    return HasFacts(node) ? local_[node.scope.index()] : Axes();
  }
  // The purpose of redistributions for the node, from the innermost region. An optimizer needs them
  // for norms of gradients.
  Why why(const Node& node) const {
    if (node.phase == Phase::kOptimizer) return Why::kNorm;
    return HasFacts(node) ? why_[node.scope.index()] : Why::kTensor;
  }

 private:
  static bool HasFacts(const Node& node) { return node.scope && node.phase != Phase::kOptimizer; }

  std::vector<Axes> local_;
  std::vector<Why> why_;
};

}  // namespace heddle::compile
