// Weights: the values that are parameters ready for use, and the gradients on their way to an
// output.
//
// Both follow from the roles of inputs and outputs and from the purposes of collectives. A value is
// a weight if it depends only on parameters, through `why=unshard` collectives, waits, views,
// slices, and ops of the family `move` (casts and copies). A value is a gradient if it leads to an
// output of role `grad` through collectives and ops with one tensor.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/core/ir/graph.h"

namespace heddle {

// The purpose and the unit of a launch. `unit` is that of tensor `i`, or empty.
Why WhyOf(const Graph& graph, NodeId launch);
std::string_view UnitOf(const Graph& graph, NodeId launch, size_t i);
// Whether a launch makes a parameter ready for use, with any kind of collective.
bool MovesWeight(const Graph& graph, NodeId node);
// FSDP's collectives: gathers of parameters, and reductions of gradients over the ranks that split
// the batch.
bool IsUnshard(const Graph& graph, NodeId node);
bool IsGradReduction(const Graph& graph, NodeId node);

class Weights {
 public:
  explicit Weights(const Graph& graph);

  bool is_weight(ValueId v) const { return v && weight_[v.index()]; }
  // Whether the value is a gathered weight, or a view or copy of one.
  bool is_gathered(ValueId v) const { return v && gather_[v.index()].node; }
  // The gather that produced a gathered weight, and its unit.
  NodeId gather(ValueId v) const { return gather_[v.index()].node; }
  std::string_view unit(ValueId v) const;
  // The parameter that a weight or gradient belongs to, or -1. With several, the first.
  int64_t param(ValueId v) const { return param_[v.index()]; }
  // Whether the node only brings a gradient to its output.
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
