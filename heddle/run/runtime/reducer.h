// Reducer: in which order the values of several ranks are added up. Floating point sums depend on it, so it is declared.
//
//   rank     0, 1, 2, ...: whatever else is in the payload
//   gloo     what ProcessGroupGloo does between processes: a payload is cut into chunks, and chunk c is x[c] + (x[c+1] + (... +
//            x[c+W-1])), ranks modulo W
//   ring:C   what NCCL does between nodes: C channels, each with a ring of its own, share a payload by offset; a chunk is summed along
//            its ring and ends at its owner
//   tree     pairs, pairs of pairs, ...
//
// In the element type of the payload, rounded after every addition.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/placement.h"

namespace heddle::run {

class Reducer {
 public:
  enum class Order : uint8_t { kRank, kGloo, kRing, kTree };

  explicit Reducer(Order order = Order::kRank, int64_t channels = 1)
      : order_(order), channels_(channels) {}
  // `rank`, `gloo`, `ring:4`, `tree`.
  static Result<Reducer> Parse(std::string_view text);
  std::string Format() const;

  // The reduction of one flat payload of every rank: all of the same length and element type, in rank order. With `rows`, rank r
  // owns the r-th of as many equal rows as there are ranks: a ring ends at the owner. A fresh tensor.
  at::Tensor Reduce(std::span<const at::Tensor> payloads, ReduceOp op, bool rows) const;

  // Elements `begin` to `end` of a payload are added up in this order of ranks.
  struct Segment {
    int64_t begin;
    int64_t end;
    std::vector<int64_t> order;
  };
  // All of a payload of `count` elements of `item_size` bytes, without gaps. Not for `tree`.
  std::vector<Segment> Segments(int64_t count, int64_t item_size, int64_t ranks, bool rows) const;

 private:
  Order order_;
  int64_t channels_;
};

}  // namespace heddle::run
