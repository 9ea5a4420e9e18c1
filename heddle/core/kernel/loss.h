// The loss of a step, forward and backward, which one kernel computes: a cast of bf16 logits to
// f32, _log_softmax, nll_loss_forward with a sum, nll_loss_backward, _log_softmax_backward_data, a
// cast to bf16, and views between them. Values between these nodes do not exist.
#pragma once

#include <optional>
#include <vector>

#include "heddle/core/analysis/liveness.h"
#include "heddle/core/analysis/uses.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

struct LossRun {
  // The nodes are neighbours.
  size_t count = 0;
  ValueId logits;
  ValueId labels;
  // The gradient of the sum.
  ValueId scale;
  // The nodes that compute the sum and the gradient of the logits.
  NodeId forward;
  NodeId gradient;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t ignored = 0;
  // Whether no later node needs the logits, so that the gradient may overwrite them.
  bool in_place = false;
};
// Returns the run that begins with node `first`, which casts the logits, if its nodes are
// neighbours.
std::optional<LossRun> FindLossRun(const Graph& graph, const Uses& uses, const Liveness& liveness,
                                   NodeId first);

// Makes the nodes of each loss neighbours. Other nodes between them, among them the collectives of
// data-parallel ranks, move after the loss if they depend on it, and before it otherwise. The
// launches of each communicator keep their order. A loss that this is impossible for stays as it
// is.
Graph GatherLosses(Graph graph);

// By node: whether it belongs to a loss whose nodes are neighbours. These nodes keep their
// positions.
std::vector<bool> NodesOfLosses(const Graph& graph, const Uses& uses, const Liveness& liveness);

}  // namespace heddle
