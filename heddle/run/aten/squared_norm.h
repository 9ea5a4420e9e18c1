// `heddle.squared_norm`, our own operator in ATen's dispatcher. Capture records it and graphs run
// it.
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

// Links our own operators into the program, which puts them into the dispatcher. Without a call,
// the linker drops the object file.
void LinkOwnOperators();

}  // namespace heddle::run
