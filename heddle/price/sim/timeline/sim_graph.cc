#include "heddle/price/sim/timeline/sim_graph.h"

#include "heddle/core/ops/ops.h"

namespace heddle::price {

SimGraph::SimGraph(const Graph& graph, const GraphCosts& costs, const MemoryRules& rules) {
  AddTasks(graph, costs);
  AddMemory(graph, costs, rules);
  if (rules.packed_copies) AddCopies(graph);
}

void SimGraph::AddTasks(const Graph& graph, const GraphCosts& costs) {
  tasks_.resize(graph.node_count());
  compute_ = around_ = costs.around;
  for (NodeId id : graph.nodes()) {
    const NodeCost& cost = costs.nodes[id];
    Task& task = tasks_[id.index()];
    task.compute = cost.compute;
    task.ahead = cost.ahead;
    compute_ += cost.compute + cost.ahead;
    if (graph[id].op == op::comm_wait) {
      task.kind = Task::Kind::kWait;
      NodeId start = graph[graph.operands(id)[0]].producer;
      if (start) task.start = start.index();
    } else if (cost.stream != NodeCost::kCompute) {
      task.kind = Task::Kind::kStart;
      task.stream = cost.stream;
      task.links = cost.collective.links;
      task.before = cost.pack + cost.collective.latency;
      task.transfer = cost.collective.transfer;
    }
  }
  for (const CommStream& stream : costs.streams) streams_.push_back(stream.name);
}

// The rules are those of analysis/liveness.h, which covers one order. Here they state what each
// node needs in any order.
void SimGraph::AddMemory(const Graph& graph, const GraphCosts& costs, const MemoryRules& rules) {
  Liveness liveness(graph);
  const Table<StorageId, Storage>& storages = liveness.storages();
  storage_bytes_.resize(storages.size());
  born_.resize(graph.node_count());
  passing_.resize(graph.node_count());
  for (StorageId id : storages.ids()) {
    const Storage& storage = storages[id];
    if (storage.space != Space::kDevice) continue;
    if (storage.birth && costs.nodes[storage.birth].inside) continue;
    storage_bytes_[id.index()] = storage.bytes;
    (storage.birth ? born_[storage.birth.index()] : inputs_) += storage.bytes;
  }
  std::vector<uint32_t> last_need(storages.size(), Task::kNone);
  std::vector<bool> returned(storages.size());
  for (const Output& output : graph.outputs()) returned[liveness.of(output.value).index()] = true;
  auto need = [&](NodeId id, StorageId storage) {
    const Storage& s = storages[storage];
    bool ends =
        s.birth ? bool(s.death) : rules.inputs == InputMemory::kFreed && !returned[storage.index()];
    ends &= s.space == Space::kDevice;
    if (!ends || last_need[storage.index()] == id.index()) return;
    last_need[storage.index()] = id.index();
    needs_.push_back(storage.index());
  };
  needs_begin_.reserve(graph.node_count() + 1);
  // First the storages of inputs, then those of each node in turn.
  uint32_t next_born = static_cast<uint32_t>(graph.inputs().size());
  for (NodeId id : graph.nodes()) {
    needs_begin_.push_back(static_cast<uint32_t>(needs_.size()));
    for (; next_born < storages.size() && storages[StorageId(next_born)].birth == id; ++next_born)
      need(id, StorageId(next_born));
    for (ValueId value : graph.operands(id)) {
      if (value) need(id, liveness.of(value));
    }
    uint32_t start = tasks_[id.index()].start;
    if (start == Task::kNone) continue;
    // Until the wait, the network reads the collective's inputs and writes its outputs.
    for (ValueId value : graph.results(id)) need(id, liveness.of(value));
    if (rules.packed_copies) continue;
    for (ValueId value : graph.operands(NodeId(start))) {
      if (value) need(id, liveness.of(value));
    }
  }
  needs_begin_.push_back(static_cast<uint32_t>(needs_.size()));
}

void SimGraph::AddCopies(const Graph& graph) {
  auto bytes = [&](auto values) {
    Bytes sum;
    for (ValueId value : values) sum += graph.types().bytes(graph.type(value));
    return sum;
  };
  for (NodeId id : graph.nodes()) {
    const Task& task = tasks_[id.index()];
    if (task.kind == Task::Kind::kStart && graph.operands(id).size() > 1)
      passing_[id.index()] = bytes(graph.operands(id));
    if (task.kind != Task::Kind::kWait || task.start == Task::kNone) continue;
    const NodeId start(task.start);
    if (graph[start].op == op::comm_all_gather && graph.operands(start).size() > 1)
      passing_[id.index()] = bytes(graph.results(id));
  }
}

}  // namespace heddle::price
