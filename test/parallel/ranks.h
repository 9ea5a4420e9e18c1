// For the tests of this folder: a global graph on one rank, and what was made of it on all ranks.
#pragma once

#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>

#include "heddle/ir/graph.h"
#include "heddle/pass/manager.h"
#include "heddle/passes/parallel/parallelize.h"
#include "heddle/passes/parallel/plan.h"

namespace heddle {

// Runs a pipeline and fails the test with its diagnostics.
void RunPasses(Module& module, std::string_view pipeline);
// From captured to local, with the passes that follow.
Module Parallelized(Module module, const Plan& plan, bool reduce_first = false);

// Outputs of a graph on one rank.
std::vector<at::Tensor> RunWhole(const Module& module, const std::vector<at::Tensor>& inputs);
// Outputs of a local graph on all ranks, put together: each rank gets its parts of `inputs`.
std::vector<at::Tensor> RunOnRanks(const Module& module, const std::vector<at::Tensor>& inputs);

// Output `o` of a local graph, put together from what each rank has.
Result<at::Tensor> AssembledOutput(const Module& local, size_t o,
                                   const std::vector<std::vector<at::Tensor>>& by_rank);

// The largest difference, relative to the largest element of `b`.
double RelativeDifference(const at::Tensor& a, const at::Tensor& b);

}  // namespace heddle
