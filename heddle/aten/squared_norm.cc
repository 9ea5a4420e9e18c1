#include "heddle/aten/squared_norm.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/stack.h>
#include <torch/library.h>

namespace heddle {
namespace {

at::Tensor RunSquaredNorm(at::TensorList tensors) {
  std::vector<at::Tensor> norms;
  norms.reserve(tensors.size());
  for (const at::Tensor& tensor : tensors) norms.push_back(at::linalg_vector_norm(tensor, 2));
  at::Tensor norm = at::linalg_vector_norm(at::stack(norms), 2);
  return at::mul(norm, norm);
}

TORCH_LIBRARY_FRAGMENT(heddle, library) { library.def("squared_norm(Tensor[] inputs) -> Tensor"); }
// Not for all devices at once: traced tensors must see one op, not its parts.
TORCH_LIBRARY_IMPL(heddle, CPU, library) { library.impl("squared_norm", RunSquaredNorm); }
TORCH_LIBRARY_IMPL(heddle, CUDA, library) { library.impl("squared_norm", RunSquaredNorm); }

}  // namespace

void LinkOwnOperators() {}

at::Tensor SquaredNorm(at::TensorList tensors) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("heddle::squared_norm", "")
                             .typed<at::Tensor(at::TensorList)>();
  // It has no gradient, and traced tensors have no autograd kernel for it.
  at::AutoDispatchBelowADInplaceOrView below_autograd;
  return op.call(tensors);
}

}  // namespace heddle
