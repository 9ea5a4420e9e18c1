// Steps, seed, optimizer and runtime of a job. Error messages call a field by its flag.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "heddle/run/models/model.h"
#include "heddle/run/runtime/device/kernel_backend.h"
#include "heddle/run/runtime/recorder.h"
#include "heddle/run/runtime/reducer.h"

namespace heddle {

struct OptimizationOptions {
  int64_t steps = 10;
  int64_t seed = 42;
  double lr = 8e-4;
  run::OptimizerOptions optimizer = {};
  std::string reducer = "gloo";
  int64_t threads = 1;
  // Records steps on a GPU and replays them, where possible.
  bool graph = true;
  // Runs groups of ops on a GPU as kernels of Heddle's own, with the bits of ATen.
  bool kernels = true;
  // Empty: do not compute hashes.
  std::string hashes = {};
  bool hash_gradients = false;

  // `processes`: ranks are processes, which reduce as Gloo does.
  Result<run::Reducer> MakeReducer(bool processes, c10::DeviceType device) const;
  // Returns the factory of step recorders for SessionOptions; empty on CPUs and without `graph`.
  std::function<Result<std::unique_ptr<run::RunRecorder>>()> Recorder(c10::Device device) const;
  // Returns Heddle's own kernels; null on CPUs, without `kernels`, or if they cannot be compiled.
  // In the last case, calls `notice`.
  std::unique_ptr<run::Kernels> OwnKernels(
      c10::Device device, const std::function<void(const std::string&)>& notice) const;
};

}  // namespace heddle
