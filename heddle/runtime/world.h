// LockstepWorld: all ranks of a mesh in this process, or the one rank of a graph without a mesh. Every rank runs a node before any
// runs the next, and collectives are plain loops (comm_call.h). Deterministic, and nothing to set up.
//
// State is updated in place: the tensors of inputs that the graph updates are written over, and the outputs that update them are
// the same tensors.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "heddle/aten/call.h"
#include "heddle/base/result.h"
#include "heddle/ir/graph.h"
#include "heddle/runtime/comm_call.h"
#include "heddle/runtime/slots.h"

namespace heddle {

struct LockstepOptions {
  c10::Device device = c10::kCPU;
  // Ranks share the storage of what a collective makes equal on all of them, unless it is written over later. Without it the
  // memory of each rank is what a process of its own would need.
  bool share_results = true;
};

class LockstepWorld {
 public:
  // A local graph. A module without a mesh has one rank.
  static Result<LockstepWorld> Compile(const Module& module, const Graph& graph,
                                       const LockstepOptions& options = {});

  // Called behind every node, before anything is let go, with the tensors of each rank by slot (SlotPlan::TensorsOf).
  using Observer = std::function<void(NodeId node, std::span<const Tensors> values_by_rank)>;
  // The tensors of each rank, in the order of the graph's inputs and outputs. Inputs that are updated belong to one rank each.
  // Fails with the ranks, the node, its operands and what went wrong.
  Result<std::vector<std::vector<at::Tensor>>> Run(
      std::span<const std::vector<at::Tensor>> inputs_by_rank, const Observer& observer = {}) const;

  // The same for a world of one rank.
  Result<std::vector<at::Tensor>> RunAlone(const std::vector<at::Tensor>& inputs) const;

  int64_t ranks() const { return module_.mesh.ranks(); }
  const SlotPlan& slots() const { return slots_; }
  // Whether running the graph writes over the tensor of this input.
  bool updates(size_t input) const { return updated_[input]; }

 private:
  struct Step {
    // One call for all ranks, or one for each where attributes are sizes that depend on the rank.
    std::vector<AtenCall> calls;
    // In the place of calls, for Heddle's own ops.
    std::optional<CommCall> comm;
  };

  LockstepWorld(Module module, const Liveness& liveness);
  const Graph& graph() const { return module_.graphs[0]; }
  Result<Step> CompileNode(NodeId node, const LockstepOptions& options) const;
  Status CheckInputs(std::span<const Tensors> inputs_by_rank) const;
  void CheckUpdatedInputs(std::span<const Tensors> inputs_by_rank) const;
  // One node on ranks that run it together. The buffers are kept between calls.
  struct Buffers {
    std::vector<Tensors> operands;
    std::vector<Tensors> results;
  };
  Status RunNode(NodeId node, std::span<const int64_t> ranks, std::span<Tensors> values_by_rank,
                 Buffers& buffers) const;
  // `ranks 1, 3: `; nothing where there is only one.
  std::string Where(std::span<const int64_t> at) const;
  Failure Describe(NodeId node, std::span<const int64_t> at, std::span<const Tensors> operands,
                   std::string_view what) const;

  // A copy, for messages.
  Module module_;
  SlotPlan slots_;
  // By input, and by node: whether an update writes over its storage.
  std::vector<bool> updated_;
  Table<NodeId, bool> written_over_;
  Table<NodeId, Step> steps_;
  // Each rank alone: the groups of nodes that are no collectives.
  std::vector<std::vector<int64_t>> alone_;
};

}  // namespace heddle
