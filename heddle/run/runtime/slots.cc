#include "heddle/run/runtime/slots.h"

namespace heddle::run {
namespace {
constexpr uint32_t kAbsent = UINT32_MAX;
}  // namespace

SlotPlan::SlotPlan(const Graph& graph, const Liveness& liveness) {
  PlaceValues(graph);
  PlanSteps(graph);
  PlanReleases(graph, liveness);
}

void SlotPlan::PlaceValues(const Graph& graph) {
  uint32_t next = 0;
  for (ValueId value : graph.values()) {
    first_slot_.push_back(next);
    TypeId type = graph.type(value);
    bool async = graph.types().is_async(type);
    next += async ? static_cast<uint32_t>(graph.types().elements(type).size()) : 1;
  }
  first_slot_.push_back(next);
}

void SlotPlan::PlanSteps(const Graph& graph) {
  for (NodeId id : graph.nodes()) {
    Step step;
    step.first_operand = static_cast<uint32_t>(operands_.size());
    for (ValueId value : graph.operands(id)) {
      if (!value) {
        operands_.push_back(kAbsent);
        continue;
      }
      uint32_t end = first_slot_[value.index() + 1];
      for (uint32_t slot = first_slot_[value.index()]; slot < end; ++slot)
        operands_.push_back(slot);
    }
    step.operand_count = static_cast<uint32_t>(operands_.size()) - step.first_operand;
    const Node& node = graph[id];
    if (node.result_count > 0) {
      step.first_result = first_slot_[node.first_result.index()];
      step.result_count =
          first_slot_[node.first_result.index() + node.result_count] - step.first_result;
    }
    steps_.Add(step);
  }
  for (const Output& output : graph.outputs())
    outputs_.push_back(first_slot_[output.value.index()]);
}

void SlotPlan::PlanReleases(const Graph& graph, const Liveness& liveness) {
  std::vector<std::vector<uint32_t>> by_step(steps_.size());
  for (ValueId value : graph.values()) {
    uint32_t slots = first_slot_[value.index() + 1] - first_slot_[value.index()];
    for (uint32_t i = 0; i < slots; ++i) {
      const Storage& storage = liveness.storages()[StorageId(liveness.of(value).index() + i)];
      // The caller owns inputs, and receives outputs.
      if (storage.birth && storage.death)
        by_step[storage.death.index()].push_back(first_slot_[value.index()] + i);
    }
  }
  for (NodeId id : steps_.ids()) {
    const std::vector<uint32_t>& slots = by_step[id.index()];
    steps_[id].first_released = static_cast<uint32_t>(released_.size());
    steps_[id].released_count = static_cast<uint32_t>(slots.size());
    released_.insert(released_.end(), slots.begin(), slots.end());
  }
}

Tensors SlotPlan::Start(std::span<const at::Tensor> inputs) const {
  Tensors values(first_slot_.back());
  std::copy(inputs.begin(), inputs.end(), values.begin());
  return values;
}

void SlotPlan::Load(NodeId node, const Tensors& values,
                    std::vector<const at::Tensor*>& operands) const {
  const Step& step = steps_[node];
  operands.clear();
  for (uint32_t i = 0; i < step.operand_count; ++i) {
    uint32_t slot = operands_[step.first_operand + i];
    operands.push_back(slot == kAbsent ? &absent_ : &values[slot]);
  }
}

Tensors SlotPlan::Operands(NodeId node, const Tensors& values) const {
  std::vector<const at::Tensor*> loaded;
  Load(node, values, loaded);
  Tensors operands;
  for (const at::Tensor* tensor : loaded) operands.push_back(*tensor);
  return operands;
}

void SlotPlan::Store(NodeId node, Tensors& results, Tensors& values) const {
  const Step& step = steps_[node];
  for (uint32_t i = 0; i < step.result_count; ++i)
    values[step.first_result + i] = std::move(results[i]);
}

void SlotPlan::Release(NodeId node, Tensors& values) const {
  const Step& step = steps_[node];
  for (uint32_t i = 0; i < step.released_count; ++i)
    values[released_[step.first_released + i]].reset();
}

Tensors SlotPlan::Outputs(const Tensors& values) const {
  Tensors outputs;
  for (uint32_t slot : outputs_) outputs.push_back(values[slot]);
  return outputs;
}

}  // namespace heddle::run
