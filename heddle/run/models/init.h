// Initial weights from a seed, and batches: the same numbers on every platform.
//
// Every element is a function of the seed, the tensor's name and the element's index, made of integer arithmetic, one conversion
// and one product; nothing depends on libm, on vector width or on the order of evaluation.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/run/models/model.h"

namespace heddle::run {

// Of one parameter, by its name and shape: normal with the spread that its family asks for; norms are ones.
at::Tensor InitParam(const Model& model, const ParamSpec& param, uint64_t seed,
                     DType dtype = DType::kF32);

// Tokens and labels of step `step`: the token at a position of a row is splitmix64(seed * 2^40 + step * 2^32 + row * 2^16 + position)
// modulo the vocabulary, and its label the token behind it. Rows count over the whole batch, so that data do not depend on the mesh
// and ranks can make their own.
struct Batch {
  at::Tensor tokens;
  at::Tensor labels;
};
Batch MakeBatch(int64_t vocab_size, int64_t rows, int64_t seq_len, uint64_t seed, int64_t step,
                int64_t first_row = 0);

}  // namespace heddle::run
