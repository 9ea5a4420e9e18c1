#include "heddle/run/runtime/device/same_numbers.h"

#include <ATen/ops/view_as_real.h>

namespace heddle::run {

bool SameNumbers(const at::Tensor& a, const at::Tensor& b) {
  if (a.is_complex()) return SameNumbers(at::view_as_real(a), at::view_as_real(b));
  at::ScalarType bits = a.element_size() == 2 ? at::kShort : at::kInt;
  at::Tensor same = a.contiguous().view(bits).eq(b.contiguous().view(bits));
  return same.logical_or(a.isnan().logical_and(b.isnan())).all().item<bool>();
}

}  // namespace heddle::run
