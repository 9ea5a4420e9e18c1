// StagedStep: the coordinate of a pipeline that runs each node of a step, and how often.
//
// The step is the local graph of one micro-batch. Forward and backward run once per micro-batch, on
// the coordinate of their stage. Gathers of weights, reductions of gradients and the optimizer run
// once per step, or once per group of micro-batches, on the coordinate of their parameter: that of
// the first stage that reads it. They read the sums over all micro-batches, or over the group.
// Other coordinates that read a parameter receive its shards and gather them. The gradient norm
// needs all gradients: the coordinate of the last stage, the root, computes it.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "heddle/core/analysis/layers.h"
#include "heddle/core/analysis/uses.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

// The stages of a pipeline: the first position (Layers) of each, and its coordinate.
struct StagePlaces {
  std::vector<int64_t> first_positions;
  std::vector<int32_t> coordinates;

  size_t count() const { return coordinates.size(); }
};

// The nodes that reduce a sum of gradients over the ranks that split the batch.
struct GroupReduction {
  // The sum over micro-batches that it reads, and its result.
  ValueId sum;
  ValueId grad;
  // In execution order; none if no ranks split the batch.
  std::vector<NodeId> nodes;
};

class StagedStep {
 public:
  // Every coordinate that needs such a value computes it.
  static constexpr int32_t kAnywhere = -1;

  // `step` must outlive the result.
  static Result<StagedStep> Find(const Module& module, const Graph& step,
                                 const StagePlaces& places);

  bool once(NodeId node) const { return part(node) == StepPart::kOnce; }
  StepPart part(NodeId node) const { return part_[node.index()]; }
  // The stage of a node that runs per micro-batch, or kAnywhere.
  int32_t stage(NodeId node) const { return stage_[node.index()]; }
  // A node that runs once, but after the micro-batches.
  bool late(NodeId node) const { return late_[node.index()]; }
  // Whether the node gathers a parameter, or makes a gathered parameter ready for use, for
  // micro-batches only.
  bool gathers(NodeId node) const { return gathers_[node.index()]; }
  const std::vector<GroupReduction>& reductions() const { return reductions_; }
  // Whether each coordinate runs the node for its own gradients, and the root joins the results.
  bool splits(NodeId node) const;
  // The coordinate that computes a value, or kAnywhere.
  int32_t home(ValueId value) const { return home_[value.index()]; }
  // Whether the value of all micro-batches is their sum.
  bool summed(ValueId value) const { return summed_[value.index()]; }
  int32_t root() const { return places_.coordinates.back(); }

  // Whether a coordinate runs a node, and whether it needs a value.
  bool runs(int32_t coordinate, NodeId node) const {
    return runs_[static_cast<size_t>(coordinate)][node.index()];
  }
  bool needs(int32_t coordinate, ValueId value) const {
    return needs_[static_cast<size_t>(coordinate)][value.index()];
  }
  // Whether a coordinate returns an output.
  bool returns(int32_t coordinate, const Output& output) const;
  // Values of other stages that a stage reads, from the beginning of its forward or backward.
  const std::vector<ValueId>& forward_reads(size_t stage) const { return forward_reads_[stage]; }
  const std::vector<ValueId>& backward_reads(size_t stage) const { return backward_reads_[stage]; }

 private:
  StagedStep(const Module& module, const Graph& step, const StagePlaces& places);
  void FindStages();
  void FollowGradient(const Output& output, const Weights& weights);
  void AddReduction(std::span<const NodeId> path, ValueId grad);
  // Whether a node reads the value besides one reader, or the step returns it.
  bool HasOtherReaders(ValueId value) const {
    return uses_.of(value).size() + (uses_.is_output(value) ? 1 : 0) > 1;
  }
  bool ReducesOverBatch(NodeId node) const;
  void FindGathers(const Weights& weights);
  void FindParams(const Weights& weights);
  Status FindReads();
  Status CheckRead(NodeId node, ValueId value);
  Status FindHomes();
  Status FindHome(NodeId node);
  void FindNeeds(int32_t coordinates);
  void Need(int32_t coordinate, ValueId value);
  // Whether every coordinate that needs the node's results runs it: a gather, or a view of a value
  // that is there before the micro-batches.
  bool IsOwn(NodeId node) const;
  int32_t CoordinateOf(NodeId node) const {
    return stage(node) == kAnywhere ? kAnywhere
                                    : places_.coordinates[static_cast<size_t>(stage(node))];
  }
  Failure Refuse(ValueId value, std::string_view why) const;

  const Module& module_;
  const Graph& graph_;
  const StagePlaces& places_;
  std::vector<StepPart> part_;
  std::vector<int32_t> stage_;
  std::vector<bool> late_;
  std::vector<bool> gathers_;
  Uses uses_;
  std::vector<GroupReduction> reductions_;
  std::vector<int32_t> param_home_;
  std::vector<int32_t> home_;
  // Values of the root that other coordinates read.
  std::vector<bool> shared_;
  std::vector<bool> summed_;
  std::vector<std::vector<ValueId>> forward_reads_;
  std::vector<std::vector<ValueId>> backward_reads_;
  // By coordinate.
  std::vector<std::vector<bool>> runs_;
  std::vector<std::vector<bool>> needs_;
};

}  // namespace heddle::compile
