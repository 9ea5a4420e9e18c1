#include "heddle/run/aten/norms.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/clamp_min.h>
#include <ATen/ops/div.h>
#include <ATen/ops/linalg_vector_norm.h>
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

// As torch.optim.Muon, which normalizes a contiguous matrix, or the transpose of one.
at::Tensor RunNormalize(const at::Tensor& self, double eps) {
  at::Tensor matrix = self.contiguous();
  return at::div(matrix, at::clamp_min(at::linalg_vector_norm(matrix, 2), eps));
}

TORCH_LIBRARY_FRAGMENT(heddle, library) {
  library.def("normalize(Tensor self, *, float eps) -> Tensor");
  library.def("squared_norm(Tensor[] inputs, *, int[] places=[], int count=0) -> Tensor");
}
// Registered per device, not for all devices: tracing must record one op, not its parts.
void AddKernels(torch::Library& library) {
  library.impl("normalize", RunNormalize);
  library.impl("squared_norm", RunSquaredNorm);
}
TORCH_LIBRARY_IMPL(heddle, CPU, library) { AddKernels(library); }
TORCH_LIBRARY_IMPL(heddle, CUDA, library) { AddKernels(library); }

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

at::Tensor Normalize(const at::Tensor& matrix, double eps) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("heddle::normalize", "")
                             .typed<at::Tensor(const at::Tensor&, double)>();
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.call(matrix, eps);
}

}  // namespace heddle::run
