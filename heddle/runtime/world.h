// World: a graph compiled for running, and the ranks that run it in this process: all of a mesh in lockstep, or one of them.
//
// Every rank of this process runs a node before any runs the next. What a collective means is in collective.h, who takes part in
// communicator.h, and how bytes move is the transport's affair: copies and sums in a declared order between ranks of one process
// (lockstep_transport.h), c10d between processes (process/). A collective is launched where it starts and completed where it is
// waited for.
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
#include "heddle/runtime/local_call.h"
#include "heddle/runtime/lockstep_transport.h"
#include "heddle/runtime/slots.h"

namespace heddle {

struct WorldOptions {
  c10::Device device = c10::kCPU;
  // The order of additions, where all ranks live in this process.
  Reducer reducer = Reducer();
  // Ranks share the storage of what a collective makes equal on all of them, unless it is written over later. Without it the
  // memory of each rank is what a process of its own would need.
  bool share_results = true;
  // The ranks of this process, and what carries their payloads; all ranks, if there is no transport.
  std::vector<int64_t> ranks = {};
  std::shared_ptr<Transport> transport = nullptr;
};

class World {
 public:
  // A local graph. A module without a mesh has one rank.
  static Result<World> Compile(const Module& module, const Graph& graph,
                               const WorldOptions& options = {});

  // Called behind every node, before anything is let go, with the tensors of each rank by slot (SlotPlan::TensorsOf). What was
  // launched and not waited for has no tensors yet where it takes time.
  using Observer = std::function<void(NodeId node, std::span<const Tensors> values_by_rank)>;
  // The tensors of each rank of this process, in the order of the graph's inputs and outputs. Inputs that are updated belong to
  // one rank each. Fails with the ranks, the node, its operands and what went wrong.
  Result<std::vector<std::vector<at::Tensor>>> Run(
      std::span<const std::vector<at::Tensor>> inputs_by_rank, const Observer& observer = {}) const;

  // The same for a world of one rank.
  Result<std::vector<at::Tensor>> RunAlone(const std::vector<at::Tensor>& inputs) const;

  const Module& module() const { return module_; }
  const Graph& graph() const { return module_.graphs[0]; }
  // Those of this process.
  std::span<const int64_t> ranks() const { return ranks_; }
  // Of every tensor.
  c10::Device device() const { return device_; }
  const SlotPlan& slots() const { return slots_; }
  // Whether running the graph writes over the tensor of this input.
  bool updates(size_t input) const { return updated_[input]; }

 private:
  // How a node is run. One of the members is set; a wait has none.
  struct Step {
    // One call for all ranks, or one for each where attributes are sizes that depend on the rank.
    std::vector<AtenCall> calls;
    std::optional<LocalCall> local;
    std::optional<Collective> collective;
    // Of a collective: members of a group share what is equal.
    bool share = false;
    // Of a collective: the launch of its first group, among those of a run.
    size_t first_pending = 0;
  };
  // Positions in ranks(), and the ranks themselves.
  struct Group {
    std::vector<size_t> at;
    std::vector<int64_t> ranks;
  };
  struct Running;

  World(Module module, const Liveness& liveness);
  Result<Step> CompileNode(NodeId node, const WorldOptions& options) const;
  void FindGroups();
  Status CheckInputs(std::span<const Tensors> inputs_by_rank) const;
  void CheckUpdatedInputs(std::span<const Tensors> inputs_by_rank) const;
  Status RunNode(NodeId node, Running& running) const;
  // One rank's own work.
  Status RunAlone(NodeId node, size_t at, Running& running) const;
  Status Start(NodeId node, const Group& group, std::unique_ptr<Pending>& pending,
               Running& running) const;
  Status Wait(NodeId node, Running& running) const;
  void StoreResults(NodeId node, const Group& group, std::vector<Tensors> received, NodeId into,
                    Running& running) const;
  // `ranks 1, 3: `; nothing where there is only one.
  std::string Where(std::span<const int64_t> ranks) const;
  Failure Describe(NodeId node, std::span<const int64_t> ranks, std::span<const Tensors> operands,
                   std::string_view what) const;

  // A copy, for messages.
  Module module_;
  c10::Device device_ = c10::kCPU;
  SlotPlan slots_;
  std::vector<int64_t> ranks_;
  std::shared_ptr<Transport> transport_;
  Communicators communicators_;
  // By communicator: the groups that have ranks in this process.
  std::vector<std::vector<Group>> groups_;
  // By input, and by node: whether an update writes over its storage.
  std::vector<bool> updated_;
  Table<NodeId, bool> written_over_;
  Table<NodeId, Step> steps_;
  // Launches of a run.
  size_t pending_count_ = 0;
};

}  // namespace heddle
