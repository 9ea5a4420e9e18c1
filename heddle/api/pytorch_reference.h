// PyTorchReference: trains a job with PyTorch in separate processes (verify/pytorch/reference.py).
#pragma once

#include <memory>
#include <string>

#include "heddle/core/base/file.h"
#include "heddle/run/launch/line_process.h"
#include "heddle/run/verify/step_hashes.h"

namespace heddle {

class PyTorchReference {
 public:
  // `torch` is the version that this program was built with.
  PyTorchReference(std::string python, std::string torch)
      : python_(std::move(python)), torch_(std::move(torch)) {}

  // The folder into which the job must be written before Start.
  const std::string& folder() const { return folder_.path(); }
  // Starts the program. Fails if the interpreter is missing or has no torch; the error contains the
  // command that installs it.
  Status Start();
  // Makes only the check of Start, without a job.
  Status CheckTorch() const;
  // The error in the initial weights; empty if they are right.
  const std::string& wrong_weights() const { return wrong_weights_; }
  // The version of PyTorch.
  const std::string& version() const { return version_; }
  // Returns the hashes of all ranks after the next step.
  Result<run::StepHashes> NextStep();

 private:
  Result<std::unique_ptr<run::LineProcess>> StartPython(std::vector<std::string> arguments) const;
  Failure NoTorch(std::string_view why) const;
  // Makes the error of a program that ended early: its exit code and the end of its standard error.
  Failure Ended();

  std::string python_;
  std::string torch_;
  std::string version_;
  std::string wrong_weights_;
  TempDir folder_;
  std::unique_ptr<run::LineProcess> process_;
};

}  // namespace heddle
