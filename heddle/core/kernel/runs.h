// Finds runs of nodes that one kernel can compute.
//
// Nodes between those of the kernel also belong to the run; ATen runs them before or after the
// kernel. Values that only the kernel's nodes read do not exist.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "heddle/core/analysis/liveness.h"
#include "heddle/core/analysis/uses.h"
#include "heddle/core/ir/graph.h"
#include "heddle/core/kernel/groups.h"

namespace heddle {

// Consecutive updates by fused AdamW, either each with the multiplication that clips its gradient,
// or none with one. All have the same rate, step and numbers.
struct AdamWRun {
  struct Update {
    NodeId node;
    ValueId param;
    // Before clipping.
    ValueId grad;
    ValueId average;
    ValueId square;
  };
  size_t count = 0;
  std::vector<Update> updates;
  ValueId lr;
  ValueId step;
  // Invalid without clipping.
  ValueId clip;
  double beta1 = 0;
  double beta2 = 0;
  double weight_decay = 0;
  double eps = 0;
};
// Returns the longest run that begins with node `first` and has at least two updates.
std::optional<AdamWRun> FindAdamWRun(const Graph& graph, const Uses& uses, NodeId first);

// The nodes that kernels of the optimizer run.
struct OptimizerRuns {
  // By first node.
  std::map<NodeId, AdamWRun> updates;
  // Squared norms of f32 tensors.
  std::set<NodeId> norms;
};
OptimizerRuns FindOptimizerRuns(const Graph& graph, const Uses& uses);

// Makes the graph return gradients before their cast from bf16 to f32, if only the norm, clipping
// and updates read the cast: kernels then read half the bytes.
Graph ReturnNarrowGradients(Graph graph);
// Returns the casts of such gradients that only `runs` read. They need not run.
std::set<NodeId> SparedCasts(const Graph& graph, const Uses& uses, const OptimizerRuns& runs);
// Returns `value`, or the operand of the spared cast that computes it.
ValueId BeforeCast(const Graph& graph, const std::set<NodeId>& spared, ValueId value);

// The graph in the order that a GPU runs it, its groups, and the casts that do not run. The device
// program, its memory and its launches are made from the same arrangement. `copies` are the
// parameters that have copies (weight_copies.h); by default the graph, which is that of the step,
// decides.
ArrangedGraph ArrangeStep(const Graph& graph,
                          const std::optional<std::set<int64_t>>& copies = std::nullopt);

}  // namespace heddle
