// Backend: compiles a run of nodes into a step, which the ranks of this process run.
//
// A graph is compiled from its first node to its last. At each position, the first backend that
// accepts the node compiles the next step, from this node or from several nodes that begin with it.
// Backends exist for ATen's ops, Heddle's own local ops, collectives and fused kernels.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <ATen/core/stack.h>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"
#include "heddle/run/runtime/slots.h"
#include "heddle/run/runtime/transport.h"

namespace heddle::run {

// Data that all steps of a compiled graph share.
class RunPlan {
 public:
  // `ranks` are the ranks of this process.
  RunPlan(Module module, const Liveness& liveness, std::vector<int64_t> ranks, c10::Device device);

  const Module& module() const { return module_; }
  const Graph& graph() const { return module_.graphs[0]; }
  const Mesh& mesh() const { return module_.mesh; }
  const SlotPlan& slots() const { return slots_; }
  std::span<const int64_t> ranks() const { return ranks_; }
  // Device of every tensor.
  c10::Device device() const { return device_; }
  // Whether an update writes to the tensor of this input, or to a storage that this node allocates.
  bool updates(size_t input) const { return updated_[input]; }
  bool is_written_over(NodeId node) const { return written_over_[node]; }

  // Returns a prefix such as `ranks 1, 3: `; empty if the mesh has one rank.
  std::string Where(std::span<const int64_t> ranks) const;
  // Makes the error of a failed node, with its text and the operands of each of `ranks`.
  Failure Fault(NodeId node, std::span<const int64_t> ranks, std::span<const Tensors> operands,
                std::string_view what) const;

 private:
  // A copy, for error messages.
  Module module_;
  SlotPlan slots_;
  std::vector<int64_t> ranks_;
  c10::Device device_;
  std::vector<bool> updated_;
  Table<NodeId, bool> written_over_;
};

// Called after each launch of a step: with the first node of the step after its last launch, and
// with no node after the others.
using LaunchObserver = std::function<void(NodeId step)>;

// Memory that a thread reuses from step to step.
struct Scratch {
  // Null: nothing observes launches.
  const LaunchObserver* launched = nullptr;
  // Ends a launch that is not the last of its step.
  void EndLaunch() const {
    if (launched != nullptr) (*launched)(NodeId());
  }

  std::vector<const at::Tensor*> operands;
  torch::jit::Stack stack;
  Tensors results;
};

// The state of one run of a graph.
struct Running {
  // By position of a rank in RunPlan::ranks().
  std::vector<Tensors> values;
  // Collectives in flight. Each collective step has its own index.
  std::vector<std::unique_ptr<Pending>> pending;
};

class Step {
 public:
  // How a step may run:
  //
  //   kAlone     each rank on any thread, independently of the others
  //   kInTurn    one rank after the other, because all draw from one random number generator
  //   kTogether  all ranks of this process in one call
  enum class Turn : uint8_t { kAlone, kInTurn, kTogether };

  explicit Step(Turn turn) : turn_(turn) {}
  virtual ~Step() = default;
  Step(const Step&) = delete;
  Step& operator=(const Step&) = delete;

  Turn turn() const { return turn_; }
  // Runs a step that is not kTogether. The rank at position `at` reads its operands from `values`
  // and stores its results there. Throws what ATen throws.
  virtual void Run(size_t at, Tensors& values, Scratch& scratch) const;
  // Runs a step that is kTogether.
  virtual Status RunTogether(Running& running) const;

 private:
  Turn turn_;
};

// A step, and the number of nodes that it runs.
struct CompiledNodes {
  std::unique_ptr<Step> step;
  size_t nodes = 1;
};

class Backend {
 public:
  virtual ~Backend() = default;
  // Compiles the nodes from `first` on. Returns a null step if the backend does not accept this
  // node.
  virtual Result<CompiledNodes> Compile(NodeId first) = 0;
};

}  // namespace heddle::run
