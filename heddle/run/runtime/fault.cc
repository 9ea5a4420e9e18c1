#include "heddle/run/runtime/fault.h"

#include "heddle/core/ir/text/print.h"

namespace heddle::run {

std::string TensorText(const at::Tensor& tensor) {
  if (!tensor.defined()) return "undefined";
  std::string sizes;
  for (int64_t size : tensor.sizes()) sizes += (sizes.empty() ? "" : ",") + std::to_string(size);
  return fmt::format("{}[{}] on {}", c10::toString(tensor.scalar_type()), sizes,
                     tensor.device().str());
}

std::string OperandLines(std::span<const at::Tensor> operands, std::string_view whose) {
  std::string lines;
  for (size_t i = 0; i < operands.size(); ++i)
    lines += fmt::format("\n  operand {}{}: {}", i, whose, TensorText(operands[i]));
  return lines;
}

Failure RunFault(const Module& module, const Graph& graph, NodeId node, std::string_view where,
                 std::string_view what, std::string_view operand_lines) {
  return Error(Diag::kRunFault, "{}node {} failed: {}\n  {}{}", where, node.index(), what,
               PrintNode(module, graph, node), operand_lines);
}

}  // namespace heddle::run
