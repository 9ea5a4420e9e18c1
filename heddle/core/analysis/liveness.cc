#include "heddle/core/analysis/liveness.h"

#include "heddle/core/analysis/uses.h"
#include "heddle/core/ops/ops.h"

namespace heddle {

Liveness::Liveness(const Graph& graph) : storage_of_(graph.value_count()) {
  storages_.reserve(graph.value_count());
  const TypeTable& types = graph.types();
  for (const Input& input : graph.inputs()) {
    TypeId type = graph.type(input.value);
    storage_of_[input.value] =
        storages_.Add({input.value, types.bytes(type), types.space(type), NodeId(), NodeId()});
  }
  for (NodeId id : graph.nodes()) {
    Allocate(graph, id);
    Use(graph, id);
  }
  for (const Output& output : graph.outputs())
    storages_[storage_of_[output.value]].death = NodeId();
}

void Liveness::Allocate(const Graph& graph, NodeId id) {
  const TypeTable& types = graph.types();
  auto fresh = [&](ValueId value, TypeId type) {
    return storages_.Add({value, types.bytes(type), types.space(type), id, id});
  };
  std::span<const ValueId> operands = graph.operands(id);
  IdRange<ValueId> results = graph.results(id);
  Effect effect = graph.op(id).effect();
  if (graph[id].op == op::comm_wait) {
    // The elements were allocated in a row when the collective started.
    uint32_t first = storage_of_[operands[0]].index();
    for (size_t i = 0; i < results.size(); ++i) {
      storage_of_[results[i]] = StorageId(first + i);
      storages_[StorageId(first + i)].value = results[i];
    }
    return;
  }
  for (size_t i = 0; i < results.size(); ++i) {
    ValueId value = results[i];
    TypeId type = graph.type(value);
    if (effect == Effect::kView && !operands.empty() && operands[0]) {
      storage_of_[value] = storage_of_[operands[0]];
    } else if (effect == Effect::kUpdate && i < operands.size() && operands[i]) {
      storage_of_[value] = storage_of_[operands[i]];
    } else if (types.is_async(type)) {
      StorageId first(storages_.size());
      for (TypeId element : types.elements(type)) fresh(value, element);
      storage_of_[value] = first;
    } else {
      storage_of_[value] = fresh(value, type);
    }
  }
}

void Liveness::Use(const Graph& graph, NodeId id) {
  auto touch = [&](StorageId storage) {
    // An input has no birth, and is never freed.
    if (storages_[storage].birth) storages_[storage].death = id;
  };
  for (ValueId value : graph.operands(id)) {
    if (value) touch(storage_of_[value]);
  }
  if (graph[id].op != op::comm_wait) return;
  // Until the wait, the network reads the collective's inputs and writes its outputs.
  ValueId handle = graph.operands(id)[0];
  NodeId start = graph[handle].producer;
  for (ValueId result : graph.results(id)) touch(storage_of_[result]);
  for (ValueId value : graph.operands(start)) {
    if (value) touch(storage_of_[value]);
  }
}

}  // namespace heddle
