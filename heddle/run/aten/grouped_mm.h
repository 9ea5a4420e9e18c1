// `aten._grouped_mm` for the element type that ATen refuses, f64: gradients of mixtures of experts are checked in it.
#pragma once

#include <optional>

#include <ATen/core/Tensor.h>

#include "heddle/core/ir/graph.h"
#include "heddle/run/aten/own_kernel.h"

namespace heddle::run {

// One product for each group. `offs` gives the end of each group along the dimension that is cut: the rows of `a` [t,k] with
// `b` [g,k,n], the columns of `b` [k,t] with `a` [g,m,k], the inner positions of `a` [m,t] and `b` [t,n]. What lies behind
// the last group is zero. With two stacks of matrices there is no `offs`.
at::Tensor GroupedMm(const at::Tensor& a, const at::Tensor& b,
                     const std::optional<at::Tensor>& offs);

// For grouped products of f64; null for other nodes.
OwnKernel GroupedMmKernel(const Graph& graph, NodeId node);

}  // namespace heddle::run
