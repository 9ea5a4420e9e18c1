// Blocks: which repeated block of a model each node belongs to.
//
// A block is an element of a list of modules: its scope ends with the first component that is a number, as `layers.3` of
// `layers.3.attention.wq`. What stands in no list is in no block.
#pragma once

#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

class Blocks {
 public:
  static constexpr int64_t kNone = -1;

  explicit Blocks(const Graph& graph);

  // Numbered in the order in which the graph first comes to them.
  int64_t of(NodeId node) const { return block_[node.index()]; }
  // Whether the node stands in the block itself, and in none of its modules.
  bool at_top(NodeId node) const { return at_top_[node.index()]; }
  int64_t count() const { return count_; }

 private:
  std::vector<int64_t> block_;
  std::vector<bool> at_top_;
  int64_t count_ = 0;
};

}  // namespace heddle
