#include "heddle/run/eager/muon.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/matmul.h>

namespace heddle::run {

// The calls of torch.optim.Muon, in its order.
at::Tensor EagerOrthogonalized(const at::Tensor& direction, const OptimizerOptions& options) {
  const auto [a, b, c] = *options.NsCoefficients();
  bool tall = direction.size(0) > direction.size(1);
  at::Tensor x = direction.to(at::kBFloat16, /*non_blocking=*/false, /*copy=*/true);
  if (tall) x = x.t();
  x.div_(at::linalg_vector_norm(x, 2).clamp(options.ns_eps));
  for (int64_t i = 0; i < options.ns_steps; ++i) {
    at::Tensor gram = at::matmul(x, x.t());
    x = at::addmm(x, at::addmm(gram, gram, gram, b, c), x, a);
  }
  return tall ? x.t() : x;
}

}  // namespace heddle::run
