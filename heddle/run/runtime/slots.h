// SlotPlan: the slots of a graph's values during a run. A value is freed when its storage dies
// (analysis/liveness.h). A tensor has one slot. An async value has one per element, so that a wait
// only moves tensors.
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

  // Returns the values before the first node: the inputs in the graph's order, and empty slots.
  Tensors Start(std::span<const at::Tensor> inputs) const;
  // Collects pointers to the node's operands, in flat order. Absent operands are undefined tensors.
  void Load(NodeId node, const Tensors& values, std::vector<const at::Tensor*>& operands) const;
  // Returns the node's operands as tensors.
  Tensors Operands(NodeId node, const Tensors& values) const;
  // Moves the node's results into their slots.
  void Store(NodeId node, Tensors& results, Tensors& values) const;
  // Frees the values that no later node needs.
  void Release(NodeId node, Tensors& values) const;
  // Returns the outputs in the graph's order.
  Tensors Outputs(const Tensors& values) const;

  // Returns the slots of a value: one, or one per element of an async value.
  std::span<const at::Tensor> TensorsOf(ValueId value, const Tensors& values) const {
    return {values.data() + first_slot_[value.index()],
            first_slot_[value.index() + 1] - first_slot_[value.index()]};
  }
  // Stores the tensor of one value.
  void Set(ValueId value, at::Tensor tensor, Tensors& values) const {
    values[first_slot_[value.index()]] = std::move(tensor);
  }
  // Number of tensors that a node returns, counting the elements of async values.
  size_t result_count(NodeId node) const { return steps_[node].result_count; }

 private:
  struct Step {
    // Range in operands_, and the first of the consecutive result slots.
    uint32_t first_operand = 0;
    uint32_t operand_count = 0;
    uint32_t first_result = 0;
    uint32_t result_count = 0;
    // Range in released_.
    uint32_t first_released = 0;
    uint32_t released_count = 0;
  };

  void PlaceValues(const Graph& graph);
  void PlanSteps(const Graph& graph);
  void PlanReleases(const Graph& graph, const Liveness& liveness);

  // First slot of each value, and at the end the number of slots.
  std::vector<uint32_t> first_slot_;
  Table<NodeId, Step> steps_;
  // Slots; UINT32_MAX for an absent operand.
  std::vector<uint32_t> operands_;
  std::vector<uint32_t> released_;
  std::vector<uint32_t> outputs_;
  // The undefined tensor of absent operands.
  at::Tensor absent_;
};

}  // namespace heddle::run
