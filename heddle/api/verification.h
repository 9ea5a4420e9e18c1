// Verification: trains a compiled job and the same job in another way, and compares every bit after
// every step. api::Verify (verify.h) runs one from beginning to end.
#pragma once

#include <memory>
#include <optional>

#include "heddle/api/against_pytorch.h"
#include "heddle/api/job_run.h"
#include "heddle/run/verify/eager_run.h"
#include "heddle/run/verify/verify.h"

namespace heddle {

struct VerificationOptions : SharedJobOptions {
  VerificationOptions() { loop.dataset = "synthetic"; }

  // `eager`, `pytorch`, `none`, `processes`, or a pipeline.
  std::string against = "eager";
  // A Python interpreter with torch, for `pytorch`.
  std::string python = "python3";
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
  // The version of PyTorch; empty unless `against` is `pytorch`.
  std::string pytorch;
  c10::DeviceType device;
  std::span<const run::ParamSpec> params;
};

class Verification;

class VerifyObserver : public JobObserver {
 public:
  virtual void Compared(const Verification& /*run*/, const run::StepRow& /*row*/) {}
  // The run is over.
  virtual void Ended(const Verification& /*run*/, const run::VerifyReport& /*report*/) {}
};

// Whether `against` is a pipeline.
bool IsPipeline(std::string_view against);

class Verification : public JobRun {
 public:
  // Both must outlive this object.
  Verification(const VerificationOptions& options, VerifyObserver& observer)
      : JobRun(options, observer),
        python_(options.python),
        against_(options.against),
        watcher_(observer) {}

  // Checks options and files, and compiles. The arguments are those of OpenDevice.
  Status Prepare(std::optional<int64_t> processes,
                 std::optional<int64_t> local_rank = std::nullopt);
  // Restricts this process to its own rank. Fails if the other ranks run another job.
  Status Join(run::Peers& peers);
  // For --against=pytorch: starts PyTorch, or checks that it can be started.
  Status StartReference();
  Status CheckReference() const;
  // Runs the comparison. Its failures are not errors in options.
  Result<run::VerifyReport> Train();
  VerifiedJob Job() const;

 private:
  bool against_pipeline() const { return IsPipeline(against_); }
  // Returns the graphs of a step, compiled with another pipeline.
  Result<StepGraphs> CompiledWith(const std::string& pipeline) const;
  Result<std::unique_ptr<run::GraphRun>> MakeRun(const StepGraphs& graphs,
                                                 bool lockstep = false) const {
    return MakeGraphRun(graphs, OptionsOfSession(lockstep));
  }
  run::EagerOptions Eager() const;
  Status CheckPipeline() const;
  Status CheckEager() const;
  // Gradient accumulation and validation can be compared only with PyTorch.
  Status CheckSteps() const;
  // Whether gradients of HSDP are all-reduced before they are scattered.
  bool ReducesFirst() const;
  PyTorchJob ReferenceJob() const;
  Status FindPass();

  const std::string& python_;
  // `eager`, `pytorch`, `none`, `processes`, or a pipeline.
  const std::string& against_;
  VerifyObserver& watcher_;
  std::optional<AgainstPyTorch> pytorch_;
  // The graphs of the pipeline to compare with.
  StepGraphs other_;
  run::VerifyOptions options_;
  run::VerifyReport report_;
};

namespace api {

// If RANK is set, as by torchrun, this process is that rank of a job. Otherwise it has all ranks.
Result<run::VerifyReport> Verify(const VerificationOptions& options, VerifyObserver& observer);

}  // namespace api
}  // namespace heddle
