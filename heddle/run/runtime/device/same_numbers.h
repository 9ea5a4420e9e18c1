// Numbers for proofs, and their comparison bit by bit.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/core/ir/dtype.h"

namespace heddle::run {

// Returns numbers between -4 and 4. With `with_special`, every eighth block of 4,096 contains every
// bit pattern of a 16-bit type instead, including NaN and infinities, so that other rows stay
// finite.
at::Tensor ProofNumbers(int64_t count, DType dtype, int64_t seed, bool with_special,
                        c10::Device device);

// NaNs are equal whatever bits they have.
bool SameNumbers(const at::Tensor& a, const at::Tensor& b);

}  // namespace heddle::run
