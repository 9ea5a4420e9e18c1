// Runs a global graph on one rank, and its local graph on all ranks, for the tests in this folder.
#pragma once

#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>

#include "heddle/compile/compile.h"
#include "heddle/compile/plan/plan.h"
#include "heddle/core/ir/graph.h"
#include "heddle/run/models/model.h"

namespace heddle {

// Lowers a captured graph to a local graph. Fails the test on errors.
Module Parallelized(Module module, compile::Plan plan, bool reduce_first = false);

// Returns the results of RunOnWhole. Fails the test on errors.
std::vector<at::Tensor> OutputsOf(const Module& module, const std::vector<at::Tensor>& inputs);

// Returns the inputs of a captured step: initial parameters, zeros as optimizer state, and a batch.
std::vector<at::Tensor> InputsOf(const run::Model& model, const Module& whole);

// Compares all outputs of a step on ranks with the whole graph, within 1e-9.
void ExpectTheWholeGraphsOutputs(const Module& whole, const Module& local,
                                 const std::vector<at::Tensor>& inputs);

// Returns the largest difference, relative to the largest element of `b`.
double RelativeDifference(const at::Tensor& a, const at::Tensor& b, double least = 1e-30);

}  // namespace heddle
