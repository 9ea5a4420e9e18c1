// The flags of commands that train. TorchTitan's spelling where it has one.
#pragma once

#include "heddle/cli/flags.h"
#include "heddle/models/model.h"
#include "heddle/runtime/device/kernel_backend.h"
#include "heddle/runtime/reducer.h"
#include "heddle/train/session.h"

namespace heddle {

struct TrainFlags {
  int64_t steps = 10;
  int64_t seed = 42;
  double lr = 8e-4;
  std::string optimizer_name = "adamw";
  std::string implementation = "fused";
  OptimizerOptions optimizer;
  std::string reducer = "gloo";
  int64_t threads = 1;
  std::string graph = "auto";
  std::string kernels = "auto";
  std::string hashes;
  bool hash_gradients = false;

  void Declare(Flags& flags);
  // Ranks that are processes add up as Gloo does.
  Result<Reducer> MakeReducer(bool processes, c10::DeviceType device) const;
  Result<OptimizerOptions> Optimizer() const;
  // What records steps, for SessionOptions: empty on CPUs, and where --runtime.graph is off.
  std::function<Result<std::unique_ptr<RunRecorder>>()> Recorder(c10::Device device) const;
  // Heddle's own kernels; null on CPUs, where --runtime.kernels is off, and where they cannot be
  // compiled, which `notice` is told.
  std::unique_ptr<Kernels> OwnKernels(c10::Device device,
                                      const std::function<void(const std::string&)>& notice) const;
  // Flags that mean nothing without others.
  Status Check() const;
  BatchSource Batches(const Model& model) const;
};

}  // namespace heddle
