// Verification: trains a compiled job and the same job in another way, and compares every bit after
// every step. api::Verify (verify.h) runs one from begin to end.
#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "heddle/api/against_pytorch.h"
#include "heddle/api/hash_log.h"
#include "heddle/api/loop_options.h"
#include "heddle/api/optimization_options.h"
#include "heddle/api/step_graphs.h"
#include "heddle/run/verify/eager_run.h"
#include "heddle/run/verify/verify.h"

namespace heddle {

struct VerificationOptions {
  ModelOptions model = {.precision = "f32", .deterministic = true};
  ParallelOptions parallel = {};
  CompileFor compile = StandardCompile;
  OptimizationOptions optimization = {};
  LoopOptions loop = {.dataset = "synthetic"};
  // `eager`, `pytorch`, `none`, `processes`, or a pipeline.
  std::string against = "eager";
  // A Python that has torch, for `pytorch`.
  std::string python = "python3";
  // How long processes wait for each other.
  std::chrono::milliseconds timeout = std::chrono::seconds(60);
  // Lines that must be the same on all ranks, besides model, plan and graph.
  std::string values = {};
};

// A job, and the run that it is compared with.
struct VerifiedJob {
  std::string model;
  std::string flavor;
  std::string precision;
  Mesh mesh;
  // One process per rank.
  bool processes = false;
  // The name of the pipeline.
  std::string pipeline;
  std::string against;
  std::string reducer;
  // The attention kernel; empty for a model without attention.
  std::string attention;
  // The version of PyTorch that it is compared with, if it is.
  std::string pytorch;
  c10::DeviceType device;
  std::span<const run::ParamSpec> params;
};

class Verification;

// Told of the progress. If ranks are processes, rank 0 alone is told of steps.
class VerifyObserver {
 public:
  virtual ~VerifyObserver() = default;
  // A line for people.
  virtual void Note(const std::string& /*line*/) {}
  // The step is compiled.
  virtual void Compiled(const compile::CompileReport& /*report*/) {}
  virtual void Compared(const Verification& /*run*/, const run::StepRow& /*row*/) {}
  // The run is over.
  virtual void Ended(const Verification& /*run*/, const run::VerifyReport& /*report*/) {}
  // A run that had begun failed.
  virtual void Failed(const Diagnostics& /*diagnostics*/) {}
};

// Whether `against` is a pipeline, and no other run.
bool IsPipeline(std::string_view against);

class Verification {
 public:
  // Both must outlive this.
  Verification(const VerificationOptions& options, VerifyObserver& observer)
      : given_(options), observer_(observer), against_(options.against) {}

  // Finds mistakes in options and files, and compiles. Unless all ranks are in this process,
  // `processes` is the number of the job's processes (0: one per rank of the mesh).
  Status Prepare(std::optional<int64_t> processes, int64_t local_rank = 0);
  const PlannedStep& step() const { return compiled_->planned; }
  int64_t ranks() const { return graph().mesh.ranks(); }
  // From here on, this process has one rank only. Fails if the others do other work.
  Status Join(run::Peers& peers);
  // --against=pytorch: starts PyTorch, or checks that it could be started.
  Status StartReference();
  Status CheckReference() const;
  // Failures are not mistakes in options.
  Result<run::VerifyReport> Train();
  VerifiedJob Job() const;

 private:
  bool against_pipeline() const { return IsPipeline(against_); }
  // The graphs of a step with a pipeline instead of the one that the flags name.
  Result<StepGraphs> CompiledWith(const std::string& pipeline) const;
  Result<std::unique_ptr<run::Session>> MakeSession(const StepGraphs& graphs) const;
  Result<std::unique_ptr<run::Session>> MakeLockstep(const StepGraphs& graphs) const;
  Result<std::unique_ptr<run::Session>> MakeSession(const StepGraphs& graphs,
                                                    run::SessionOptions options) const;
  run::EagerOptions Eager() const;
  Status CheckEager() const;
  // Gradient accumulation and validation are compared with PyTorch's alone.
  Status CheckSteps() const;
  // Gradients of HSDP are all-reduced before they are scattered.
  bool ReducesFirst() const;
  const Module& graph() const { return compiled_->graphs.step; }
  // With all that flags and searches decide.
  const compile::Plan& plan() const { return compiled_->plan; }
  int64_t micro_batches() const { return step().micro_batches(); }
  bool leads() const { return peers_ == nullptr || peers_->rank() == 0; }
  PyTorchJob ReferenceJob() const;
  Status FindPass();

  const VerificationOptions& given_;
  VerifyObserver& observer_;
  // Eager, pytorch, none, processes, or a pipeline.
  std::string against_;
  // None if all ranks are in this process.
  run::Peers* peers_ = nullptr;
  c10::Device device_ = c10::kCPU;
  std::unique_ptr<run::Kernels> kernels_;
  run::OptimizerOptions optimizer_;
  std::optional<run::Schedule> schedule_;
  std::unique_ptr<run::Dataset> dataset_;
  run::Reducer reducer_;
  run::ParamSource params_;
  HashLog hashes_;
  std::optional<CompiledStep> compiled_;
  std::optional<AgainstPyTorch> pytorch_;
  // The graphs of the pipeline that it is compared with.
  StepGraphs other_;
  run::VerifyOptions options_;
  run::VerifyReport report_;
};

}  // namespace heddle
