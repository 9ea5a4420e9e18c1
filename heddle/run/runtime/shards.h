// Whole tensors and the parts of them that ranks hold.
#pragma once

#include <span>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/placement.h"

namespace heddle::run {

// Whether element types, sizes and all bits are the same: a NaN equals itself, 0.0 and -0.0 differ.
bool SameBits(const at::Tensor& a, const at::Tensor& b);

// What `rank` holds of `whole`, contiguous: its part of every dimension that is split. Where a sum is pending, ranks that do not
// stand first along its axis hold zeros; where a product is, ones. A whole that nothing splits is shared, not copied.
at::Tensor ShardOf(const at::Tensor& whole, const Placement& placement, const Mesh& mesh,
                   int64_t rank);

// The whole that these parts make up. Pending reductions go in rank order. Fails where replicas differ in a bit, with
// both ranks, and where a part has other sizes than its place.
Result<at::Tensor> Assemble(std::span<const at::Tensor> parts_by_rank, const Placement& placement,
                            const Mesh& mesh, at::IntArrayRef whole_sizes);

}  // namespace heddle::run
