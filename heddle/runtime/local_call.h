// LocalCall: a node of one of Heddle's own ops that a rank runs alone: its part of a tensor, bounds of its part, moves between
// memories.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "heddle/ir/graph.h"
#include "heddle/ops/ops.h"
#include "heddle/runtime/slots.h"

namespace heddle {

class LocalCall {
 public:
  static bool Runs(OpId op);
  LocalCall(const Mesh& mesh, const Graph& graph, NodeId node, c10::Device device);

  // In fresh tensors. Throws what ATen throws.
  void Run(int64_t rank, std::span<const at::Tensor* const> operands, Tensors& results) const;

 private:
  Mesh mesh_;
  c10::Device device_;
  OpId op_;
  Axes over_;
  int64_t dim_ = 0;
  // Of shard.bound.
  int64_t size_ = 0;
  bool end_ = false;
};

}  // namespace heddle
