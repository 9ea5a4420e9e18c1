// Backward kernels of attention that assume a memory layout and ignore strides.
//
// The memory-efficient kernel assumes that the output of forward is stored as [batch, positions,
// heads, size]. cuDNN assumes that this output and its gradient have the layout of the query, once
// it has run with such a query. Forward writes these layouts, but an output that was sent between
// ranks arrives contiguous. The kernels would then return wrong gradients without an error.
#pragma once

#include "heddle/core/ir/op.h"
#include "heddle/run/aten/own_kernel.h"

namespace heddle::run {

// Returns a kernel that calls `op` with its tensors in the layout that the op assumes. It copies
// the tensors that have another layout. Returns null for other ops.
OwnKernel AttentionLayoutKernel(OpId op);

}  // namespace heddle::run
