// Weights: which values are parameters made ready for use, and which are their gradients on the way out.
//
// Both follow from facts: roles of inputs and outputs, and why collectives are there. A value is a weight if parameters alone
// make it, through gathers that say `why=unshard`, waits, views, parts, and ops of the family `move`: casts and copies. A value is a
// gradient if it goes to the output of role `grad`, through collectives and ops of one tensor.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

// What a launch says of itself. `unit` is the one of tensor `i`; empty if there is none.
Why WhyOf(const Graph& graph, NodeId launch);
std::string_view UnitOf(const Graph& graph, NodeId launch, size_t i);
// Whether a launch makes a parameter ready for use, by whatever collective.
bool MovesWeight(const Graph& graph, NodeId node);
// FSDP's own: gathers of parameters, and reductions of gradients over the ranks that split the batch.
bool IsUnshard(const Graph& graph, NodeId node);
bool IsGradReduction(const Graph& graph, NodeId node);

class Weights {
 public:
  explicit Weights(const Graph& graph);

  bool is_weight(ValueId v) const { return v && weight_[v.index()]; }
  // A weight that a gather put together, or a layout of one.
  bool is_gathered(ValueId v) const { return v && gather_[v.index()].node; }
  // For a gathered weight: the gather that it is from, and its unit.
  NodeId gather(ValueId v) const { return gather_[v.index()].node; }
  std::string_view unit(ValueId v) const;
  // The parameter that a weight or gradient belongs to, or -1. If there are several, the first.
  int64_t param(ValueId v) const { return param_[v.index()]; }
  // Whether the node does nothing but bring a gradient to its output.
  bool carries_gradient(NodeId node) const { return carries_gradient_[node.index()]; }

 private:
  struct Source {
    NodeId node;
    size_t operand = 0;
  };
  void AddWeight(NodeId node);
  bool MakesWeight(NodeId node) const;
  void FollowGradient(const Output& output);

  const Graph& graph_;
  std::vector<bool> weight_;
  std::vector<Source> gather_;
  std::vector<int64_t> param_;
  std::vector<bool> carries_gradient_;
};

}  // namespace heddle
