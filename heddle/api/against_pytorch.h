// AgainstPyTorch: a graph's training compared with PyTorch's, hash by hash.
#pragma once

#include <optional>

#include "heddle/api/pytorch_job.h"
#include "heddle/api/pytorch_reference.h"
#include "heddle/run/runtime/process/peers.h"
#include "heddle/run/verify/verify.h"

namespace heddle {

class AgainstPyTorch {
 public:
  // `peers` is null if all ranks are in this process. All of it must outlive this.
  AgainstPyTorch(const PyTorchJob& job, const run::Dataset& dataset, run::Peers* peers)
      : job_(job), dataset_(dataset), peers_(peers) {}

  // Starts PyTorch, on rank 0 alone. `torch` is the version that this program is built with. Calls
  // `note` if the other version differs.
  Status Start(const std::string& python, const std::string& torch, const run::ParamSource& params,
               const std::function<void(const std::string&)>& note);
  // The version of the torch that trains; empty on other ranks than 0.
  std::string version() const { return reference_ ? reference_->version() : ""; }
  // Trains the graph step by step until a hash differs. Takes steps, learning rates and on_step
  // from the options.
  Result<run::VerifyReport> Train(run::Session& session, const run::VerifyOptions& options);

 private:
  bool leads() const { return peers_ == nullptr || peers_->rank() == 0; }
  // Lines of hashes of this process's ranks after a step.
  Result<std::string> OwnLines(run::Session& session) const;
  // The hashes of all ranks.
  Result<run::StepHashes> AllHashes(run::Session& session) const;
  // Rank 0 compares and tells the others.
  Result<std::optional<run::HashDifference>> Compare(const run::StepHashes& own);

  PyTorchJob job_;
  const run::Dataset& dataset_;
  run::Peers* peers_;
  std::optional<PyTorchReference> reference_;
};

}  // namespace heddle
