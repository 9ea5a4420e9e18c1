// `heddle.squared_norm`, an operator of our own in ATen's dispatcher: capture records it, graphs run it.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle::run {

// A vector: of each tensor the square of its Euclidean norm. Over ranks the squares of parts add up. Their roots are the norms
// themselves, to the bit: rounding a square never moves its root. The norm of these is what clipping takes, as
// torch.nn.utils.get_total_norm works it out, for DTensors as well.
//
// With `places` tensor i stands at places[i] of `count`, and zeros elsewhere.
at::Tensor SquaredNorm(at::TensorList tensors, at::IntArrayRef places = {}, int64_t count = 0);

// Makes sure that operators of our own are in the dispatcher: a linker leaves out what nobody calls.
void LinkOwnOperators();

}  // namespace heddle::run
