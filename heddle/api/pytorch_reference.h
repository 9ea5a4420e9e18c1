// PyTorchReference: a job that PyTorch trains in its own processes (verify/pytorch/reference.py).
#pragma once

#include <memory>
#include <string>

#include "heddle/core/base/file.h"
#include "heddle/run/launch/line_process.h"
#include "heddle/run/verify/step_hashes.h"

namespace heddle {

class PyTorchReference {
 public:
  // `torch` is the version that this program is built with.
  PyTorchReference(std::string python, std::string torch)
      : python_(std::move(python)), torch_(std::move(torch)) {}

  // Where the job is to be written before Start.
  const std::string& folder() const { return folder_.path(); }
  // Fails if the interpreter is absent or has no torch, with the command that installs it.
  Status Start();
  // The same check alone, without a job.
  Status CheckTorch() const;
  // The fault of the initial weights; empty if they are right.
  const std::string& wrong_weights() const { return wrong_weights_; }
  // The version of the torch that trains.
  const std::string& version() const { return version_; }
  // The hashes of all ranks after the next step.
  Result<run::StepHashes> NextStep();

 private:
  Result<std::unique_ptr<run::LineProcess>> StartPython(std::vector<std::string> arguments) const;
  Failure NoTorch(std::string_view why) const;
  // For a program that ended too soon: its exit code and the end of its standard error.
  Failure Ended();

  std::string python_;
  std::string torch_;
  std::string version_;
  std::string wrong_weights_;
  TempDir folder_;
  std::unique_ptr<run::LineProcess> process_;
};

}  // namespace heddle
