// Runs of nodes that one kernel can compute, found in a graph.
//
// Nodes between those of the kernel belong to the run as well; ATen runs them before or after it.
// Values that only the kernel's own nodes read do not exist then.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "heddle/core/analysis/liveness.h"
#include "heddle/core/analysis/uses.h"
#include "heddle/core/ir/graph.h"

namespace heddle::run {

// The loss, forward and backward: a cast of bf16 logits to f32, _log_softmax, nll_loss_forward with
// a sum, nll_loss_backward, _log_softmax_backward_data, a cast to bf16, and views between them.
struct LossRun {
  size_t count = 0;
  ValueId logits;
  ValueId labels;
  // The gradient of the sum.
  ValueId scale;
  // The nodes that make the sum and the gradient of the logits.
  NodeId forward;
  NodeId gradient;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t ignored = 0;
  // Nothing needs the logits afterwards: the gradient may take their place.
  bool in_place = false;
  // Other nodes, in order: nodes that the scale may depend on, and nodes that read the loss.
  std::vector<NodeId> before;
  std::vector<NodeId> after;
  // Values that nodes before the kernel use for their shape alone, and that exist after it.
  std::vector<ValueId> shapes;
};
// The run that begins with node `first`, which casts the logits.
std::optional<LossRun> FindLossRun(const Graph& graph, const Uses& uses, const Liveness& liveness,
                                   NodeId first);

// By node: whether it belongs to a loss. These nodes stay where they are.
std::vector<bool> NodesOfLosses(const Graph& graph);

// Updates by fused AdamW, one after the other, each with the multiplication that clips its
// gradient, or none with one. All have the same rate, step and numbers.
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
  // None without clipping.
  ValueId clip;
  double beta1 = 0;
  double beta2 = 0;
  double weight_decay = 0;
  double eps = 0;
};
// The longest run that begins with node `first` and has at least two updates.
std::optional<AdamWRun> FindAdamWRun(const Graph& graph, const Uses& uses, NodeId first);

// What kernels of the optimizer run.
struct OptimizerRuns {
  // By first node.
  std::map<NodeId, AdamWRun> updates;
  // Squared norms of f32 tensors.
  std::set<NodeId> norms;
};
OptimizerRuns FindOptimizerRuns(const Graph& graph, const Uses& uses);

// A graph that returns gradients as they were before their cast from bf16 to f32, where only the
// norm, clipping and updates read the cast: kernels then read half of the bytes.
Graph ReturnNarrowGradients(Graph graph);
// The casts of such gradients that only `runs` read. They need not run.
std::set<NodeId> SparedCasts(const Graph& graph, const Uses& uses, const OptimizerRuns& runs);
// `value`, or the operand of the spared cast that makes it.
ValueId BeforeCast(const Graph& graph, const std::set<NodeId>& spared, ValueId value);

}  // namespace heddle::run
