// PricedCut: decides what to keep for backward and what to recompute, at a price of memory.
//
// At a given price of bytes in time, the minimum cut through the operands of backward minimizes
// time + price * bytes exactly: a chain counts once for all its consumers, and inputs are free. All
// prices together give the corners of the curve of time over bytes.
#pragma once

#include <span>
#include <vector>

#include "heddle/search/memory/choice.h"

namespace heddle {
class Weights;
}  // namespace heddle

namespace heddle::search {

struct Corner {
  Marks marks;
  // Bytes of kept values, and time of recomputing the others.
  Bytes kept;
  Nanos again;
};

class PricedCut {
 public:
  // `again` contains the time of recomputing each node. All arguments must outlive this object.
  PricedCut(const Graph& graph, const Weights& weights, std::span<const Nanos> again);

  // Returns at least two and at most `most` corners of the curve, from the one that keeps most to
  // the one that keeps least.
  std::vector<Corner> Corners(size_t most);
  // Returns a lower bound of the time of all decisions that keep at most `kept` bytes. Call Corners
  // first.
  Nanos Bound(Bytes kept) const;

  // The values to decide: operands of backward and of recomputation that can themselves be
  // recomputed, except views.
  const std::vector<ValueId>& decisions() const { return decisions_; }

 private:
  // A price: `time` for `bytes`.
  struct Price {
    Nanos time;
    Bytes bytes;
  };

  bool IsThereAnyway(ValueId v) const;
  Bytes BytesOf(ValueId v) const { return graph_.types().bytes(graph_.type(v)); }
  void FindNetwork();
  void Reach(ValueId v);
  Corner At(Price price);

  const Graph& graph_;
  const Weights& weights_;
  std::span<const Nanos> again_;
  std::vector<ValueId> decisions_;
  // The vertices: values, and nodes that can be recomputed.
  std::vector<ValueId> values_;
  std::vector<NodeId> nodes_;
  // By value: its index in `values_`, or -1; whether backward reads it. By node: its index in
  // `nodes_`, or -1.
  std::vector<int64_t> place_;
  std::vector<bool> read_behind_;
  std::vector<int64_t> node_place_;
  struct Answer {
    Price price;
    Bytes kept;
    Nanos again;
  };
  std::vector<Answer> answers_;
};

}  // namespace heddle::search
