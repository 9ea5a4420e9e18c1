// Backward kernels of attention that read tensors in a layout of their own, whatever their strides say.
//
// The memory-efficient kernel takes the output of forward to lie in memory as [batch, positions, heads, size]; cuDNN takes that
// output and its gradient to lie like the query when it has run with such a query before. Forward writes these layouts, but
// an output that has travelled between ranks comes back contiguous, and the gradients would be wrong without a word.
#pragma once

#include "heddle/core/ir/op.h"
#include "heddle/run/aten/own_kernel.h"

namespace heddle::run {

// Calls such an op with its tensors in the layout that it reads, copies of those that lie otherwise; null for other ops.
OwnKernel AttentionLayoutKernel(OpId op);

}  // namespace heddle::run
