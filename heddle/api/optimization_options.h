// Steps, seed, optimizer and runtime of a job. Messages name the fields by the flags that set them.
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
  // Steps on a GPU are recorded and replayed, where that is possible.
  bool graph = true;
  // Groups of ops on a GPU run as kernels of Heddle's own, with the bits of ATen.
  bool kernels = true;
  // Empty: take no hashes.
  std::string hashes = {};
  bool hash_gradients = false;

  // Ranks that are processes add up as Gloo does.
  Result<run::Reducer> MakeReducer(bool processes, c10::DeviceType device) const;
  // What records steps, for SessionOptions: empty on CPUs, and unless `graph` is set.
  std::function<Result<std::unique_ptr<run::RunRecorder>>()> Recorder(c10::Device device) const;
  // Heddle's own kernels; null on CPUs, unless `kernels` is set, and if they cannot be compiled, which
  // `notice` is told.
  std::unique_ptr<run::Kernels> OwnKernels(
      c10::Device device, const std::function<void(const std::string&)>& notice) const;
};

}  // namespace heddle
