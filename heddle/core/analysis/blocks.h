// Blocks: the repeated block of a model that each node belongs to.
//
// A block is an element of a list of modules. Its scope ends with the first numeric component, such
// as `layers.3` for `layers.3.attention.wq`. Nodes outside of lists are in no block.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

class Blocks {
 public:
  static constexpr int64_t kNone = -1;

  // `graph` must outlive the names.
  explicit Blocks(const Graph& graph);

  // Blocks are numbered in the order of their first nodes.
  int64_t of(NodeId node) const { return block_[node.index()]; }
  // Whether the node belongs to the block itself and not to a module inside it.
  bool at_top(NodeId node) const { return at_top_[node.index()]; }
  int64_t count() const { return count_; }
  // Its scope, such as `layers.3`.
  std::string_view name(int64_t block) const { return names_[static_cast<size_t>(block)]; }

 private:
  std::vector<int64_t> block_;
  std::vector<bool> at_top_;
  int64_t count_ = 0;
  std::vector<std::string_view> names_;
};

}  // namespace heddle
