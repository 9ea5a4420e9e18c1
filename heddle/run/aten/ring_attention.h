// A step of ring attention: causal attention of a rank's queries over the keys of one rank.
#pragma once

#include "heddle/core/ir/positions.h"
#include "heddle/run/aten/attention_part.h"

namespace heddle::run {

// Returns the output and its logsumexp. Queries that see none of the keys get zeros, and a
// logsumexp of minus infinity.
std::array<at::Tensor, 2> AttendRing(const RingPart& part, const at::Tensor& query,
                                     const at::Tensor& key, const at::Tensor& value,
                                     std::optional<double> scale);

// Returns the gradients of queries, keys and values. `tensors` have the output and logsumexp over
// the keys of all ranks.
std::array<at::Tensor, 3> AttendRingBackward(const RingPart& part, const AttendedPart& tensors,
                                             std::optional<double> scale);

// Returns attention over the keys of two parts, from the outputs and logsumexps of both, as
// PyTorch's ring attention merges them. The output has this type.
std::array<at::Tensor, 2> MergeAttention(const at::Tensor& out, const at::Tensor& logsumexp,
                                         const at::Tensor& part, const at::Tensor& part_logsumexp,
                                         at::ScalarType type);

}  // namespace heddle::run
