// `aten._grouped_mm` for f64, which ATen does not support. Gradient checks of mixtures of experts
// need it.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "heddle/core/ir/graph.h"
#include "heddle/run/aten/own_kernel.h"

namespace heddle::run {

// Computes one matrix product per group. `offs` contains the end of each group along the grouped
// dimension, which depends on the shapes:
//
//   a [t,k], b [g,k,n]: the rows of `a`
//   a [g,m,k], b [k,t]: the columns of `b`
//   a [m,t], b [t,n]: the inner dimension
//   a [g,m,k], b [g,k,n]: no `offs`
//
// The result is zero after the last group.
at::Tensor GroupedMm(const at::Tensor& a, const at::Tensor& b,
                     const std::optional<at::Tensor>& offs);

// Returns the kernel for grouped products of f64; null for other nodes.
OwnKernel GroupedMmKernel(const Graph& graph, NodeId node);

}  // namespace heddle::run
