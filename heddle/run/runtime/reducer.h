// Reducer: the order in which a reduction adds the values of ranks. Floating-point sums depend on
// it.
//
//   rank     0, 1, 2, ...
//   gloo     as ProcessGroupGloo between processes: the payload is cut into chunks, and chunk c is
//            x[c] + (x[c+1] + (... + x[c+W-1])), ranks modulo W
//   ring:C   as NCCL between nodes: C channels, each with its own ring, share the payload by
//            offset; a chunk is summed along its ring and ends at its owner
//   tree     pairs, pairs of pairs, ...
//
// Sums have the element type of the payload and are rounded after every addition.
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
  // Parses `rank`, `gloo`, `ring:4` or `tree`.
  static Result<Reducer> Parse(std::string_view text);
  std::string Format() const;

  // Reduces one flat payload per rank, in rank order, all of the same length and element type. With
  // `rows`, rank r owns the r-th of equally many rows as ranks, and a ring ends at the owner.
  // Returns a new tensor.
  at::Tensor Reduce(std::span<const at::Tensor> payloads, ReduceOp op, bool rows) const;

  // A range of a payload, and the order in which its elements are added over ranks.
  struct Segment {
    int64_t begin;
    int64_t end;
    std::vector<int64_t> order;
  };
  // Returns segments that cover a payload of `count` elements of `item_size` bytes. Not for `tree`.
  std::vector<Segment> Segments(int64_t count, int64_t item_size, int64_t ranks, bool rows) const;

 private:
  Order order_;
  int64_t channels_;
};

}  // namespace heddle::run
