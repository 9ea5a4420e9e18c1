// Uses: which nodes read each value.
#pragma once

#include <span>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

// One operand of a node.
struct Use {
  NodeId node;
  uint32_t operand;
};

class Uses {
 public:
  explicit Uses(const Graph& graph);

  // In execution order.
  std::span<const Use> of(ValueId value) const {
    return {uses_.data() + begin_[value.index()],
            begin_[value.index() + 1] - begin_[value.index()]};
  }
  bool is_output(ValueId value) const { return is_output_[value.index()]; }
  bool unused(ValueId value) const { return of(value).empty() && !is_output(value); }

 private:
  std::vector<uint32_t> begin_;
  std::vector<Use> uses_;
  std::vector<bool> is_output_;
};

}  // namespace heddle
