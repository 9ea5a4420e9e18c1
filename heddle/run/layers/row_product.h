// Products with weights for decoding on CPU.
//
// Decoding multiplies a row at a time, so its speed is that of reading weights. A row of the result
// depends on its row of `x` only, and its bits depend neither on the number of threads nor on the
// vectors of the machine.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

namespace heddle::run {

// Returns x W^T, plus the bias. `x` is [..., in], `weight` [out, in], of one type: f32, f64 or
// bf16. Sums of bf16 are in f32. Uses the threads of ATen.
at::Tensor RowProduct(const at::Tensor& x, const at::Tensor& weight,
                      const std::optional<at::Tensor>& bias = std::nullopt);

}  // namespace heddle::run
