// SimGraph: a graph prepared for replays. It stores each node's effect on streams and memory in
// flat arrays.
//
// Built once from a graph and its costs; any order of the nodes can then be replayed. Nodes are
// identified by their position in the original graph.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "heddle/core/analysis/liveness.h"
#include "heddle/price/cost/cost_model.h"

namespace heddle::price {

// The effect of one node on streams.
struct Task {
  enum class Kind : uint8_t { kCompute, kStart, kWait };
  static constexpr uint32_t kNone = UINT32_MAX;

  Kind kind = Kind::kCompute;
  Links links = Links::kNone;
  // A start: its stream.
  uint32_t stream = kNone;
  // A wait: its start; none if the operation was started before the graph.
  uint32_t start = kNone;
  // Time on the compute stream; a start may also have work there before its launch.
  Nanos compute;
  Nanos ahead;
  // A start, on its own stream: packing and latency, and then the transfer without contention.
  Nanos before;
  Nanos transfer;

  Nanos alone() const { return before + transfer; }
};

// Memory of inputs: held by the caller throughout, or freed after the last reader.
enum class InputMemory : uint8_t { kHeld, kFreed };

// How memory is counted.
struct MemoryRules {
  InputMemory inputs = InputMemory::kHeld;
  // As in PyTorch, a collective needs its inputs only until its start. A bucket has copies: the
  // packed inputs at its start, and the gathered buffer at its wait, where the results are copied
  // out of it.
  bool packed_copies = false;

  bool operator==(const MemoryRules&) const = default;
};

class SimGraph {
 public:
  SimGraph(const Graph& graph, const GraphCosts& costs, const MemoryRules& rules = {});

  size_t size() const { return tasks_.size(); }
  const std::vector<Task>& tasks() const { return tasks_; }
  const Task& operator[](NodeId id) const { return tasks_[id.index()]; }
  // Names of streams other than compute.
  const std::vector<std::string>& streams() const { return streams_; }
  // All work of the compute stream, and the part before the first node.
  Nanos compute() const { return compute_; }
  Nanos around() const { return around_; }

  // Device memory: bytes that the caller holds; storages that a node allocates; storages that it
  // needs and may free. Storages that exist until the end are only allocated.
  Bytes inputs() const { return inputs_; }
  Bytes born(NodeId id) const { return born_[id.index()]; }
  // Additional bytes while the node runs.
  Bytes passing(NodeId id) const { return passing_[id.index()]; }
  std::span<const uint32_t> needs(NodeId id) const {
    return {needs_.data() + needs_begin_[id.index()],
            needs_begin_[id.index() + 1] - needs_begin_[id.index()]};
  }
  Bytes storage_bytes(uint32_t storage) const { return storage_bytes_[storage]; }
  size_t storage_count() const { return storage_bytes_.size(); }

 private:
  void AddTasks(const Graph& graph, const GraphCosts& costs);
  void AddMemory(const Graph& graph, const GraphCosts& costs, const MemoryRules& rules);
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

// Rules of the timeline that do not depend on the graph.
struct SimOptions {
  // Slowdown of compute while a collective is in flight, in thousandths.
  static constexpr int64_t kWhole = 1000;
  int64_t slowdown = 0;
  // Concurrent collectives share the links that they use; otherwise each has the full rate.
  bool share_links = true;
};

}  // namespace heddle::price
