// `heddle.squared_norm` and `heddle.normalize`, our own operators in ATen's dispatcher. Capture
// records them and graphs run them.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::run {

// Returns a vector with the squared Euclidean norm of each tensor. Squares of shards add up over
// ranks. The square root of an element is bitwise the norm of the tensor: rounding a square never
// changes its root. Clipping takes the norm of these norms, as torch.nn.utils.get_total_norm does.
//
// With `places`, tensor i is at index places[i] of a vector of `count` elements; the others are
// zero.
at::Tensor SquaredNorm(at::TensorList tensors, at::IntArrayRef places = {}, int64_t count = 0);

// Returns the matrix divided by max(norm, eps), contiguous. The norm is that of all elements in
// row-major order.
at::Tensor Normalize(const at::Tensor& matrix, double eps);

// Links our own operators into the program, which puts them into the dispatcher. Without a call,
// the linker drops the object file.
void LinkOwnOperators();

}  // namespace heddle::run
