// Which collectives depend on which: only pairs of collectives, so that a graph of any size needs little memory.
#pragma once

#include <cstdint>
#include <vector>

#include "heddle/ir/graph.h"

namespace heddle {

class CollectiveDependence {
 public:
  explicit CollectiveDependence(const Graph& graph);

  // The nodes that start a collective, in execution order.
  const std::vector<NodeId>& collectives() const { return collectives_; }
  // Whether collective `later` needs, through any path, a result of collective `earlier`. Both count in collectives().
  bool Depends(size_t later, size_t earlier) const {
    return (rows_[later * words_ + earlier / 64] >> (earlier % 64) & 1) != 0;
  }
  bool Independent(size_t a, size_t b) const { return a < b ? !Depends(b, a) : !Depends(a, b); }

 private:
  std::vector<NodeId> collectives_;
  size_t words_ = 0;
  std::vector<uint64_t> rows_;
};

}  // namespace heddle
