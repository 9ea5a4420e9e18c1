// AgainstPyTorch: compares a graph's training with PyTorch's, hash by hash.
#pragma once

#include <optional>

#include "heddle/api/pytorch_job.h"
#include "heddle/api/pytorch_reference.h"
#include "heddle/run/runtime/process/peers.h"
#include "heddle/run/verify/verify.h"

namespace heddle {

class AgainstPyTorch {
 public:
  // `peers` is null if all ranks are in this process. All arguments must outlive this object.
  AgainstPyTorch(const PyTorchJob& job, const run::Dataset& dataset, run::Peers* peers)
      : job_(job), dataset_(dataset), peers_(peers) {}

  // Starts PyTorch on rank 0. `torch` is the version that this program was built with. Calls `note`
  // if PyTorch's version differs.
  Status Start(const std::string& python, const std::string& torch, const run::ParamSource& params,
               const std::function<void(const std::string&)>& note);
  // The version of PyTorch; empty on ranks other than 0.
  std::string version() const { return reference_ ? reference_->version() : ""; }
  // Trains the graph step by step until a hash differs. Uses the number of steps, the learning
  // rates and on_step of the options.
  Result<run::VerifyReport> Train(run::GraphRun& run, const run::VerifyOptions& options);

 private:
  bool leads() const { return peers_ == nullptr || peers_->rank() == 0; }
  // Returns the hash lines of this process's ranks after a step.
  Result<std::string> OwnLines(run::GraphRun& run) const;
  // Returns the hashes of all ranks.
  Result<run::StepHashes> AllHashes(run::GraphRun& run) const;
  // Rank 0 compares and sends the result to the others.
  Result<std::optional<run::HashDifference>> Compare(const run::StepHashes& own);

  PyTorchJob job_;
  const run::Dataset& dataset_;
  run::Peers* peers_;
  std::optional<PyTorchReference> reference_;
};

}  // namespace heddle
