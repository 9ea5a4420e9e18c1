// What a failure at run time says: the node, what it was given, and what went wrong.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle::run {

// `Float[3,4] on cpu`
std::string TensorText(const at::Tensor& tensor);
// One line for each operand: `operand 1 of rank 2: Float[3,4] on cpu`. `whose` is empty, or ` of rank 2`.
std::string OperandLines(std::span<const at::Tensor> operands, std::string_view whose = "");
// `where` stands in front: empty, or `rank 2: `. Of `what` the first line is kept: the rest is ATen's own stack.
Failure RunFault(const Module& module, const Graph& graph, NodeId node, std::string_view where,
                 std::string_view what, std::string_view operand_lines);

}  // namespace heddle::run
