// For the tests of this folder: a global graph on one rank, and what was made of it on all ranks.
#pragma once

#include <gtest/gtest.h>

#include <ATen/core/Tensor.h>

#include "heddle/compile/compile.h"
#include "heddle/compile/plan/plan.h"
#include "heddle/core/ir/graph.h"
#include "heddle/run/models/model.h"

namespace heddle {

// From captured to local; fails the test with the diagnostics.
Module Parallelized(Module module, compile::Plan plan, bool reduce_first = false);

// What RunOnWhole gives; fails the test with its diagnostics.
std::vector<at::Tensor> OutputsOf(const Module& module, const std::vector<at::Tensor>& inputs);

// What a captured step of the model takes: initial parameters, zeros as the states of an optimizer, and a batch.
std::vector<at::Tensor> InputsOf(const run::Model& model, const Module& whole);

// All outputs of a step on ranks against the whole graph, within 1e-9.
void ExpectTheWholeGraphsOutputs(const Module& whole, const Module& local,
                                 const std::vector<at::Tensor>& inputs);

// The largest difference, relative to the largest element of `b`.
double RelativeDifference(const at::Tensor& a, const at::Tensor& b);

}  // namespace heddle
