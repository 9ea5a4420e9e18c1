// RankProgram: a graph compiled for the ranks of this process: all ranks of a mesh in lockstep, or
// one.
//
// Every rank of this process runs a node before any rank runs the next. collective.h defines the
// effect of collectives, and communicator.h their groups. A transport moves the bytes: copies and
// sums between ranks of one process (lockstep_transport.h), or c10d between processes (process/). A
// collective is launched at its start node and completed at its wait.
//
// State is updated in place: an output that updates an input is the same tensor as the input.
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

struct RankProgramOptions {
  c10::Device device = c10::kCPU;
  // The order of additions, if all ranks are in this process.
  Reducer reducer = Reducer();
  // Ranks share the storage of results that a collective makes equal on all of them, unless it is
  // overwritten later. Without sharing, each rank uses the memory of a separate process.
  bool share_results = true;
  // Number of threads that run ranks between collectives. It does not change the bits.
  int64_t threads = 1;
  // The ranks of this program in this process, and the transport of their payloads. Without a
  // transport, payloads stay in this process. Empty: all ranks.
  std::vector<int64_t> ranks = {};
  std::shared_ptr<Transport> transport = nullptr;
  // For a coordinate of a pipeline: its transfers with the others.
  std::shared_ptr<Transfers> transfers = nullptr;
  // Reorders the graph for a backend that is asked first and can accept several nodes at a time.
  std::function<ArrangedKernels(const Graph& graph)> kernels = {};
  // Observes launches of ranks that run on one thread.
  LaunchObserver launched = {};
};

class RankProgram {
 public:
  // Compiles a local graph. A module without a mesh has one rank.
  static Result<RankProgram> Compile(const Module& module, const Graph& graph,
                                     const RankProgramOptions& options = {});

  // Called after every node, before values are freed, with the tensors of each rank by slot
  // (SlotPlan::TensorsOf). The results of a launch in flight are undefined.
  using Observer = std::function<void(NodeId node, std::span<const Tensors> values_by_rank)>;
  // Runs the graph. Takes and returns the tensors of each rank of this process, in the order of the
  // graph's inputs and outputs. Ranks must not share inputs that are updated. The error names the
  // ranks, the node, its operands and the cause.
  Result<std::vector<std::vector<at::Tensor>>> Run(
      std::span<const std::vector<at::Tensor>> inputs_by_rank, const Observer& observer = {}) const;

  // The same for a single rank.
  Result<std::vector<at::Tensor>> RunAlone(const std::vector<at::Tensor>& inputs) const;

  const Module& module() const { return plan_->module(); }
  const Graph& graph() const { return plan_->graph(); }
  // The ranks of this process.
  std::span<const int64_t> ranks() const { return plan_->ranks(); }
  // Device of every tensor.
  c10::Device device() const { return plan_->device(); }
  const SlotPlan& slots() const { return plan_->slots(); }
  // Whether collectives move tensors between processes, and the number of threads that run ranks.
  bool spans_processes() const { return spans_processes_; }
  size_t threads() const { return threads_; }
  // Whether the graph updates the tensor of this input.
  bool updates(size_t input) const { return plan_->updates(input); }

 private:
  struct Failed;

  explicit RankProgram(std::unique_ptr<const RunPlan> plan) : plan_(std::move(plan)) {}
  Status CheckInputs(std::span<const Tensors> inputs_by_rank) const;
  void CheckUpdatedInputs(std::span<const Tensors> inputs_by_rank) const;
  Status RunInTurn(Running& running, const Observer& observer) const;
  Status RunOnThreads(Running& running) const;
  // Runs the ranks of one of several threads, up to the first failure.
  template <typename Barrier>
  void RunThread(size_t thread, Running& running, Barrier& barrier,
                 std::vector<std::optional<Failed>>& failed) const;
  // A step and its nodes, from `first` to before `end`.
  struct Placed {
    NodeId first;
    NodeId end;
    std::unique_ptr<Step> step;
  };
  Result<std::vector<Placed>> CompileSteps(std::span<const std::unique_ptr<Backend>> backends);
  // Runs a step of one rank.
  Status RunStep(const Placed& placed, size_t at, Tensors& values, Scratch& scratch) const;
  void Release(const Placed& placed, Tensors& values) const;

  // Never moves, because steps refer to it.
  std::unique_ptr<const RunPlan> plan_;
  // Steps may refer to the backend that made them.
  std::vector<std::unique_ptr<Backend>> backends_;
  std::vector<Placed> steps_;
  // One step per node, for observers. Empty if steps_ has one step per node.
  std::vector<Placed> single_steps_;
  bool spans_processes_ = false;
  size_t threads_ = 1;
  LaunchObserver launched_;
  // Number of launches per run.
  size_t launch_count_ = 0;
};

}  // namespace heddle::run
