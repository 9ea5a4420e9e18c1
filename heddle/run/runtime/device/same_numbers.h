// Compares tensors bit by bit.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::run {

// NaNs are equal whatever bits they have.
bool SameNumbers(const at::Tensor& a, const at::Tensor& b);

}  // namespace heddle::run
