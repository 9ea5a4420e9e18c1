#include "heddle/run/aten/attention_layout.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/ops/ops.h"

namespace heddle::run {
namespace {

// Dimensions, sorted from the largest stride to the smallest.
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

at::Tensor& Argument(const c10::OperatorHandle& op, torch::jit::Stack& stack, const char* name) {
  return stack[static_cast<size_t>(op.schema().argumentIndexWithName(name).value())].toTensor();
}
void LayOut(at::Tensor& tensor, const Order& order) { tensor = InOrder(tensor, order); }

void EfficientBackward(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  LayOut(Argument(op, stack, "out"), {0, 2, 1, 3});
  op.callBoxed(stack);
}

void CudnnBackward(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  Order order = OrderOf(Argument(op, stack, "query"));
  LayOut(Argument(op, stack, "out"), order);
  LayOut(Argument(op, stack, "grad_out"), order);
  op.callBoxed(stack);
}

}  // namespace

OwnKernel AttentionLayoutKernel(OpId op) {
  if (op == op::_scaled_dot_product_efficient_attention_backward) return EfficientBackward;
  if (op == op::_scaled_dot_product_cudnn_attention_backward) return CudnnBackward;
  return nullptr;
}

}  // namespace heddle::run
