#include "heddle/run/aten/squared_norm.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

namespace heddle::run {
namespace {

at::Tensor RunSquaredNorm(at::TensorList tensors, at::IntArrayRef places, int64_t count) {
  // clip_grad_norm_ calls the same op: on GPUs it has its own kernels, with other bits.
  at::Tensor stacked = at::stack(at::_foreach_norm(tensors, 2));
  at::Tensor squares = at::mul(stacked, stacked);
  if (places.empty()) return squares;
  at::Tensor all = at::zeros({count}, squares.options());
  for (size_t i = 0; i < places.size(); ++i) all[places[i]].copy_(squares[static_cast<int64_t>(i)]);
  return all;
}

TORCH_LIBRARY_FRAGMENT(heddle, library) {
  library.def("squared_norm(Tensor[] inputs, *, int[] places=[], int count=0) -> Tensor");
}
// Registered per device, not for all devices: tracing must record one op, not its parts.
TORCH_LIBRARY_IMPL(heddle, CPU, library) { library.impl("squared_norm", RunSquaredNorm); }
TORCH_LIBRARY_IMPL(heddle, CUDA, library) { library.impl("squared_norm", RunSquaredNorm); }

}  // namespace

void LinkOwnOperators() {}

at::Tensor SquaredNorm(at::TensorList tensors, at::IntArrayRef places, int64_t count) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("heddle::squared_norm", "")
                             .typed<at::Tensor(at::TensorList, at::IntArrayRef, int64_t)>();
  // The op has no gradient, and traced tensors have no autograd kernel for it.
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.call(tensors, places, count);
}

}  // namespace heddle::run
