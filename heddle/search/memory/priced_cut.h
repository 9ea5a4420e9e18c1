// PricedCut: what to keep for backward and what to compute again, where memory has a price.
//
// For a price of bytes in time, the cheapest cut through all that backward needs is the least of time + price * bytes, exactly: a chain is
// computed once for all that read it, and nothing is counted that is there anyway. Prices from nothing to any give the corners of
// the curve of time against bytes.
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
  // Of what is kept; and what computing the rest again takes.
  Bytes kept;
  Nanos again;
};

class PricedCut {
 public:
  // `again` has, by node, what it takes to run it a second time. All outlive this.
  PricedCut(const Graph& graph, const Weights& weights, std::span<const Nanos> again);

  // Corners of the curve, from the one that keeps all to the one that keeps least; at most `most` of them, and two at least.
  std::vector<Corner> Corners(size_t most);
  // No decision that keeps at most so many bytes takes less. After Corners.
  Nanos Bound(Bytes kept) const;

  // Values that are read behind forward, or that such a one is made of, and that can be made again; without views.
  const std::vector<ValueId>& decisions() const { return decisions_; }

 private:
  // Time for `bytes` bytes.
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
  // What has vertices: values, and nodes that can be run again.
  std::vector<ValueId> values_;
  std::vector<NodeId> nodes_;
  // By value: its place in `values_`, or -1; whether something behind forward reads it. By node: the place in `nodes_`, or -1.
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
