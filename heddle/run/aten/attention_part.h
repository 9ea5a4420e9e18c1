// Causal attention of a part of the queries over the keys of all positions.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/ir/type.h"

namespace heddle::run {

// The positions of queries, and of keys and values, as consecutive ranges in the order of the
// tensors.
struct QueryPart {
  std::vector<Part> queries;
  std::vector<Part> keys;
};

// Returns the output and its logsumexp. `query` is [batch, heads, positions, size]. Computes only
// pairs of positions that the mask leaves.
std::array<at::Tensor, 2> AttendPart(const QueryPart& part, const at::Tensor& query,
                                     const at::Tensor& key, const at::Tensor& value,
                                     std::optional<double> scale);

// The operands of the backward op.
struct AttendedPart {
  const at::Tensor& grad_out;
  const at::Tensor& query;
  const at::Tensor& key;
  const at::Tensor& value;
  const at::Tensor& out;
  const at::Tensor& logsumexp;
};
// Returns the gradients of queries, keys and values. Those of keys and values are this part's
// summands, zero for positions after its last query.
std::array<at::Tensor, 3> AttendPartBackward(const QueryPart& part, const AttendedPart& tensors,
                                             std::optional<double> scale);

}  // namespace heddle::run
