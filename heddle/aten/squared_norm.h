// `heddle.squared_norm`, an operator of our own in ATen's dispatcher: capture records it, graphs run it.
#pragma once

#include <ATen/core/Tensor.h>

namespace heddle {

// The square of the Euclidean norm of all elements, by way of each tensor's norm, as torch.nn.utils.clip_grad_norm_ goes. Over ranks
// the squares of parts add up. Its root is the norm itself, to the bit: rounding a square never moves its root.
at::Tensor SquaredNorm(at::TensorList tensors);

// Makes sure that operators of our own are in the dispatcher: a linker leaves out what nobody calls.
void LinkOwnOperators();

}  // namespace heddle
