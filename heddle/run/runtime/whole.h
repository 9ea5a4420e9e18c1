// Assembles whole tensors of a local graph from the shards of its ranks.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle::run {

// Returns the type of a whole input or output.
TypeId WholeType(const Graph& graph, ValueId value, const GlobalType& global);

// Assembles output `o` of a local graph from the outputs of each rank.
Result<at::Tensor> AssembleOutput(const Module& local, size_t o,
                                  std::span<const std::vector<at::Tensor>> outputs_by_rank);

}  // namespace heddle::run
