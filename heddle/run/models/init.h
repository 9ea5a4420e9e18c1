// Initial weights from a seed, and batches: the same numbers on every platform.
//
// An element depends on the seed, the tensor's name and the element's index only. It is computed
// with integer arithmetic, one conversion and one product. So the bits do not depend on libm,
// vector width or evaluation order.
#pragma once

#include <ATen/core/Tensor.h>

#include "heddle/run/models/model.h"

namespace heddle::run {

// Returns the initial values of a parameter: normal with the deviation that its family specifies,
// or ones for norms.
at::Tensor InitParam(const Model& model, const ParamSpec& param, uint64_t seed,
                     DType dtype = DType::kF32);

// Synthetic tokens and labels of step `step`. The token at a position of a row is splitmix64(seed *
// 2^40 + step * 2^32 + row * 2^16 + position) modulo the vocabulary. Its label is the next token.
// Rows count over the whole batch, so data do not depend on the mesh, and ranks can compute their
// own rows.
struct Batch {
  at::Tensor tokens;
  at::Tensor labels;
  // Whether a token ends its document, bool[rows, positions]. Undefined if each row is a document.
  at::Tensor ends = {};
};
// Returns the place of each position in its document, i64[rows, positions]. A document ends as
// `ends` states, and begins in the row.
at::Tensor DocumentPositions(const at::Tensor& ends);
Batch MakeBatch(int64_t vocab_size, int64_t rows, int64_t seq_len, uint64_t seed, int64_t step,
                int64_t first_row = 0);

}  // namespace heddle::run
