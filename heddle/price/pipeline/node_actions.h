// The action of a pipeline schedule that each node of a coordinate belongs to.
#pragma once

#include <vector>

#include "heddle/core/ir/graph.h"
#include "heddle/core/pipeline/schedule.h"

namespace heddle::price {

class NodeActions {
 public:
  // The module must have one graph per coordinate. The scopes of its nodes and the labels of its
  // batch inputs state layers and micro-batches. `first_positions` is that of a plan's stages; if
  // empty, each stretch of layers on one coordinate counts as a stage.
  NodeActions(const Module& module, std::vector<int64_t> first_positions);

  int64_t stages() const { return static_cast<int64_t>(first_positions_.size()); }
  int64_t micro_batches() const { return micro_batches_; }
  // Null for a node that runs once per step. The whole backward of stage 0 is W. A wait for a
  // receive belongs to the action that reads the value.
  const PipelineAction* of(size_t graph, NodeId node) const {
    const PipelineAction& action = actions_[graph][node.index()];
    return action.micro_batch < 0 ? nullptr : &action;
  }

 private:
  void FindPositions(const Module& module);
  void FindStages();
  void FindMicroBatches(const Graph& graph, std::vector<PipelineAction>& actions);
  void FindStagesOfNodes(const Graph& graph, const std::vector<int64_t>& positions,
                         std::vector<PipelineAction>& actions) const;
  static void FindInputGradients(const Graph& graph, std::vector<PipelineAction>& actions);

  std::vector<int64_t> first_positions_;
  int64_t micro_batches_ = 0;
  // By graph and node: its layer from 1 on, or 0.
  std::vector<std::vector<int64_t>> positions_;
  std::vector<std::vector<PipelineAction>> actions_;
};

}  // namespace heddle::price
