#include "heddle/aten/attention_layout.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/ops/ops.h"

namespace heddle {
namespace {

// Dimensions from the slowest in memory to the fastest.
using Order = std::vector<int64_t>;

Order OrderOf(const at::Tensor& tensor) {
  Order order(static_cast<size_t>(tensor.dim()));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater(), [&](int64_t dim) { return tensor.stride(dim); });
  return order;
}

at::Tensor InOrder(const at::Tensor& tensor, const Order& order) {
  Order back(order.size());
  for (size_t i = 0; i < order.size(); ++i)
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  return tensor.permute(order).contiguous().permute(back);
}

void LayOut(c10::IValue& argument, const Order& order) {
  argument = InOrder(argument.toTensor(), order);
}

}  // namespace

bool ReadsFixedLayout(OpId op) {
  return op == op::_scaled_dot_product_efficient_attention_backward ||
         op == op::_scaled_dot_product_cudnn_attention_backward;
}

void RunInFixedLayout(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const c10::FunctionSchema& schema = op.schema();
  auto argument = [&](const char* name) -> c10::IValue& {
    return stack[static_cast<size_t>(schema.argumentIndexWithName(name).value())];
  };
  if (schema.name() == "aten::_scaled_dot_product_efficient_attention_backward") {
    LayOut(argument("out"), {0, 2, 1, 3});
  } else {
    Order order = OrderOf(argument("query").toTensor());
    LayOut(argument("out"), order);
    LayOut(argument("grad_out"), order);
  }
  op.callBoxed(stack);
}

}  // namespace heddle
