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

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"
#include "heddle/run/runtime/backend.h"
#include "heddle/run/runtime/lockstep_transport.h"

namespace heddle::run {

// A graph in the order that its kernels need, and the backend that runs them.
struct ArrangedKernels {
  Graph graph;
  std::function<std::unique_ptr<Backend>(const RunPlan& plan)> backend;
};

struct WorldOptions {
  c10::Device device = c10::kCPU;
  // The order of additions, where all ranks live in this process.
  Reducer reducer = Reducer();
  // Ranks share the storage of what a collective makes equal on all of them, unless it is written over later. Without it the
  // memory of each rank is what a process of its own would need.
  bool share_results = true;
  // Ranks run on so many threads, between one collective and the next. Bits are the same with any number.
  int64_t threads = 1;
  // The ranks of this process, and what carries their payloads; all ranks, if there is no transport.
  std::vector<int64_t> ranks = {};
  std::shared_ptr<Transport> transport = nullptr;
  // Orders the graph for a backend that is asked first, and may take several nodes at a time.
  std::function<ArrangedKernels(const Graph& graph)> kernels = {};
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

  const Module& module() const { return plan_->module(); }
  const Graph& graph() const { return plan_->graph(); }
  // Those of this process.
  std::span<const int64_t> ranks() const { return plan_->ranks(); }
  // Of every tensor.
  c10::Device device() const { return plan_->device(); }
  const SlotPlan& slots() const { return plan_->slots(); }
  // Whether collectives move tensors between processes, and on how many threads ranks run.
  bool spans_processes() const { return spans_processes_; }
  size_t threads() const { return threads_; }
  // Whether running the graph writes over the tensor of this input.
  bool updates(size_t input) const { return plan_->updates(input); }

 private:
  struct Failed;

  explicit World(std::unique_ptr<const RunPlan> plan) : plan_(std::move(plan)) {}
  Status CheckInputs(std::span<const Tensors> inputs_by_rank) const;
  void CheckUpdatedInputs(std::span<const Tensors> inputs_by_rank) const;
  Status RunInTurn(Running& running, const Observer& observer) const;
  Status RunOnThreads(Running& running) const;
  // The ranks of one of several threads, up to the first failure.
  template <typename Barrier>
  void RunThread(size_t thread, Running& running, Barrier& barrier,
                 std::vector<std::optional<Failed>>& failed) const;
  // A step, and its nodes: from `first` to before `end`.
  struct Placed {
    NodeId first;
    NodeId end;
    std::unique_ptr<Step> step;
  };
  Result<std::vector<Placed>> CompileSteps(std::span<const std::unique_ptr<Backend>> backends);
  // One rank's own work.
  Status RunStep(const Placed& placed, size_t at, Tensors& values, Scratch& scratch) const;
  void Release(const Placed& placed, Tensors& values) const;

  // Steps refer to it, so it stays where it is.
  std::unique_ptr<const RunPlan> plan_;
  // Steps may refer to the backend that made them.
  std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<Placed> steps_;
  // A step for each node, for observers. Empty if steps_ are like that.
  std::vector<Placed> single_steps_;
  bool spans_processes_ = false;
  size_t threads_ = 1;
  // Launches of a run.
  size_t launch_count_ = 0;
};

}  // namespace heddle::run
