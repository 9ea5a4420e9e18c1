// Formats errors at run time: the node, its operands, and the cause.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle::run {

// Formats a tensor as `Float[3,4] on cpu`.
std::string TensorText(const at::Tensor& tensor);
// Returns one line per operand: `operand 1 of rank 2: Float[3,4] on cpu`. `whose` is empty or ` of
// rank 2`.
std::string OperandLines(std::span<const at::Tensor> operands, std::string_view whose = "");
// Makes the error. `where` is a prefix: empty, or `rank 2: `. Keeps only the first line of `what`,
// because the rest is ATen's stack trace.
Failure RunFault(const Module& module, const Graph& graph, NodeId node, std::string_view where,
                 std::string_view what, std::string_view operand_lines);

}  // namespace heddle::run
