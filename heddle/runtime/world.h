// LockstepWorld: all ranks of a mesh in this process, or the one rank of a graph without a mesh. Every rank runs a node before any
// runs the next, and collectives are plain loops (comm_call.h). Deterministic, and nothing to set up.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "heddle/aten/call.h"
#include "heddle/base/result.h"
#include "heddle/ir/graph.h"
#include "heddle/runtime/comm_call.h"
#include "heddle/runtime/slots.h"

namespace heddle {

class LockstepWorld {
 public:
  // A local graph. A module without a mesh has one rank.
  static Result<LockstepWorld> Compile(const Module& module, const Graph& graph,
                                       c10::Device device = c10::kCPU);

  // The tensors of each rank, in the order of the graph's inputs and outputs. Ranks may share the storage of outputs that are
  // equal. Fails with the ranks, the node, its operands and what went wrong.
  Result<std::vector<std::vector<at::Tensor>>> Run(
      std::span<const std::vector<at::Tensor>> inputs_by_rank) const;

  // The same for a world of one rank.
  Result<std::vector<at::Tensor>> RunAlone(const std::vector<at::Tensor>& inputs) const;

  int64_t ranks() const { return module_.mesh.ranks(); }

 private:
  struct Step {
    // One call for all ranks, or one for each where attributes are sizes that depend on the rank.
    std::vector<AtenCall> calls;
    // In the place of calls, for Heddle's own ops.
    std::optional<CommCall> comm;
  };

  explicit LockstepWorld(Module module) : module_(std::move(module)), slots_(graph()) {}
  const Graph& graph() const { return module_.graphs[0]; }
  Result<Step> CompileNode(NodeId node, c10::Device device) const;
  Status CheckInputs(std::span<const Tensors> inputs_by_rank) const;
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
  Table<NodeId, Step> steps_;
  // Each rank alone: the groups of nodes that are no collectives.
  std::vector<std::vector<int64_t>> alone_;
};

}  // namespace heddle
