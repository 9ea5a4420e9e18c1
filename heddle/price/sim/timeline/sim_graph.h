// SimGraph: a graph made ready for replays. What each node does to streams and to memory, in flat arrays.
//
// Made once from a graph and its costs; any order of the nodes can then be replayed. Nodes are named by their place in the
// graph that this was made from.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "heddle/core/analysis/liveness.h"
#include "heddle/price/cost/cost_model.h"

namespace heddle::price {

struct Task {
  enum class Kind : uint8_t { kCompute, kStart, kWait };
  static constexpr uint32_t kNone = UINT32_MAX;

  Kind kind = Kind::kCompute;
  Links links = Links::kNone;
  // A start: where it runs.
  uint32_t stream = kNone;
  // A wait: the start of what it waits for; none for what was there before the graph began.
  uint32_t start = kNone;
  // On the compute stream; a start may also have work there before it is launched.
  Nanos compute;
  Nanos ahead;
  // A start, on its own stream: packing and latency, and then the transfer with links to itself.
  Nanos before;
  Nanos transfer;

  Nanos alone() const { return before + transfer; }
};

// What becomes of the memory of inputs: the caller holds them throughout, or lets go of each after its last reader.
enum class InputMemory : uint8_t { kHeld, kFreed };

struct MemoryRules {
  InputMemory inputs = InputMemory::kHeld;
  // As in PyTorch, the inputs of a collective are needed up to its start, not up to its wait. A
  // bucket has copies: the packed inputs at its start, and the gathered buffer at its wait, where
  // the results are copied out of it.
  bool packed_copies = false;
};

class SimGraph {
 public:
  SimGraph(const Graph& graph, const GraphCosts& costs, const MemoryRules& rules = {});

  size_t size() const { return tasks_.size(); }
  const std::vector<Task>& tasks() const { return tasks_; }
  const Task& operator[](NodeId id) const { return tasks_[id.index()]; }
  // Names of streams besides compute.
  const std::vector<std::string>& streams() const { return streams_; }
  // All that runs on the compute stream; and what of it comes before the first node.
  Nanos compute() const { return compute_; }
  Nanos around() const { return around_; }

  // Memory of the device: what the caller holds; what a node brings into being; what it needs and others may still need after
  // it. Storages that last to the end are only born.
  Bytes inputs() const { return inputs_; }
  Bytes born(NodeId id) const { return born_[id.index()]; }
  // What a node needs besides, while it runs.
  Bytes passing(NodeId id) const { return passing_[id.index()]; }
  std::span<const uint32_t> needs(NodeId id) const {
    return {needs_.data() + needs_begin_[id.index()],
            needs_begin_[id.index() + 1] - needs_begin_[id.index()]};
  }
  Bytes storage_bytes(uint32_t storage) const { return storage_bytes_[storage]; }
  size_t storage_count() const { return storage_bytes_.size(); }

 private:
  void AddTasks(const Graph& graph, const GraphCosts& costs);
  void AddMemory(const Graph& graph, const MemoryRules& rules);
  void AddCopies(const Graph& graph);

  std::vector<Task> tasks_;
  std::vector<std::string> streams_;
  Nanos compute_;
  Nanos around_;
  Bytes inputs_;
  std::vector<Bytes> born_;
  std::vector<Bytes> passing_;
  std::vector<uint32_t> needs_begin_;
  std::vector<uint32_t> needs_;
  std::vector<Bytes> storage_bytes_;
};

struct SimOptions {
  // How much longer compute takes while a collective is under way, in thousandths.
  int64_t slowdown = 0;
  // Collectives under way at the same time share the links that they use; otherwise each has them to itself.
  bool share_links = true;
};

}  // namespace heddle::price
