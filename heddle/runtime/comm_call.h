// CommCall: a node of one of Heddle's own ops, bound for running in one process: plain loops over the tensors of a group of
// ranks.
//
// Reductions go from the first member of a group to the last, in the element type of the tensor: r0 + r1, then + r2, ...
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/ir/graph.h"
#include "heddle/ops/ops.h"
#include "heddle/runtime/slots.h"

namespace heddle {

// Reduces from the first part to the last; each is multiplied by `scale` before. A fresh tensor.
at::Tensor Reduce(std::span<const at::Tensor> parts, ReduceOp op, double scale = 1.0);

class CommCall {
 public:
  // Whether the op is a collective, or another that depends on the rank or moves tensors between memories.
  static bool Runs(OpId op);
  CommCall(const Mesh& mesh, const Graph& graph, NodeId node, c10::Device device);

  // Ranks that run the node together, each group in the order of the op's axes. Alone where the op takes no part of others.
  const std::vector<std::vector<int64_t>>& groups() const { return groups_; }
  // For one group: operands and results by member, in flat order. Members may share a result's storage. Throws what ATen throws.
  void Run(std::span<const int64_t> ranks, std::span<const Tensors> operands,
           std::span<Tensors> results) const;

 private:
  // Operand `i` of each member in, one result out.
  Tensors RunTensor(std::span<const int64_t> ranks, size_t i, const Tensors& parts) const;
  // Each member gets its part of every tensor: reduced, or one behind the other.
  Tensors Exchange(std::span<const int64_t> ranks, size_t i, const Tensors& parts) const;
  at::Tensor Bound(int64_t rank) const;

  Mesh mesh_;
  c10::Device device_;
  op::Number op_;
  std::vector<std::vector<int64_t>> groups_;
  Axes over_;
  // The dimension that is cut, and the one that is put together: one for all operands, or one for each.
  AttrValue cut_dim_;
  AttrValue cat_dim_;
  ReduceOp reduce_ = ReduceOp::kSum;
  double scale_ = 1.0;
  // Of shard.bound.
  int64_t size_ = 0;
  bool end_ = false;
};

}  // namespace heddle
