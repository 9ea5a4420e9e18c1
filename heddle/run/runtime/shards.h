// Converts between whole tensors and the shards of ranks.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle::run {

// The type of a whole input or output of a local graph.
TypeId WholeType(const Graph& graph, ValueId value, const GlobalType& global);

// Whether element types, sizes and all bits are equal: a NaN equals itself, 0.0 and -0.0 differ.
bool SameBits(const at::Tensor& a, const at::Tensor& b);

// Returns the contiguous shard of `whole` on `rank`. If a sum is pending, ranks other than the
// first along its axis get zeros; if a product is pending, ones. A tensor that is not split is
// shared, not copied.
at::Tensor ShardOf(const at::Tensor& whole, const Placement& placement, const Mesh& mesh,
                   int64_t rank);

// Assembles the whole tensor from its parts. Applies pending reductions in rank order. Fails if
// replicas differ in a bit, and names both ranks. Fails if a part has wrong sizes.
Result<at::Tensor> Assemble(std::span<const at::Tensor> parts_by_rank, const Placement& placement,
                            const Mesh& mesh, at::IntArrayRef whole_sizes);

}  // namespace heddle::run
