// SlotPlan: where the values of a graph stand while it runs, and when each is let go: when its storage dies, as analysis/liveness.h
// has it, and never before. A tensor has one slot, an async value one for each element, so that a wait only moves tensors.
#pragma once

#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "heddle/core/analysis/liveness.h"
#include "heddle/core/ir/graph.h"

namespace heddle::run {

using Tensors = std::vector<at::Tensor>;

class SlotPlan {
 public:
  SlotPlan(const Graph& graph, const Liveness& liveness);

  // Values before the first node: the inputs, in the order of the graph's, and empty slots.
  Tensors Start(std::span<const at::Tensor> inputs) const;
  // What the node reads, in flat order; undefined tensors for operands that are absent. They stay where they are.
  void Load(NodeId node, const Tensors& values, std::vector<const at::Tensor*>& operands) const;
  // The same, as tensors of the caller's own.
  Tensors Operands(NodeId node, const Tensors& values) const;
  // Takes the node's results.
  void Store(NodeId node, Tensors& results, Tensors& values) const;
  // Lets go of what nothing needs after the node.
  void Release(NodeId node, Tensors& values) const;
  // The outputs, in the order of the graph's.
  Tensors Outputs(const Tensors& values) const;

  // The slots of a value: one, or as many as an async value has elements.
  std::span<const at::Tensor> TensorsOf(ValueId value, const Tensors& values) const {
    return {values.data() + first_slot_[value.index()],
            first_slot_[value.index() + 1] - first_slot_[value.index()]};
  }
  // Takes the tensor of one value.
  void Set(ValueId value, at::Tensor tensor, Tensors& values) const {
    values[first_slot_[value.index()]] = std::move(tensor);
  }
  // How many tensors a node makes, the elements of async values counted.
  size_t result_count(NodeId node) const { return steps_[node].result_count; }

 private:
  struct Step {
    // Into operands_, and the first of the consecutive slots it fills.
    uint32_t first_operand = 0;
    uint32_t operand_count = 0;
    uint32_t first_result = 0;
    uint32_t result_count = 0;
    // Into released_.
    uint32_t first_released = 0;
    uint32_t released_count = 0;
  };

  void PlaceValues(const Graph& graph);
  void PlanSteps(const Graph& graph);
  void PlanReleases(const Graph& graph, const Liveness& liveness);

  // The first slot of each value, and behind the last value the number of slots.
  std::vector<uint32_t> first_slot_;
  Table<NodeId, Step> steps_;
  // Slots; UINT32_MAX for an absent operand.
  std::vector<uint32_t> operands_;
  std::vector<uint32_t> released_;
  std::vector<uint32_t> outputs_;
  // What an operand that is absent is.
  at::Tensor absent_;
};

}  // namespace heddle::run
