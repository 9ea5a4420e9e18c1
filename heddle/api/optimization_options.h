// Steps, seed, optimizer and runtime of a job. Messages name the fields by the flags that set them.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "heddle/models/model.h"
#include "heddle/runtime/recorder.h"
#include "heddle/runtime/reducer.h"

namespace heddle {

struct OptimizationOptions {
  int64_t steps = 10;
  int64_t seed = 42;
  double lr = 8e-4;
  std::string optimizer_name = "adamw";
  std::string implementation = "fused";
  OptimizerOptions optimizer = {};
  std::string reducer = "gloo";
  int64_t threads = 1;
  // `auto` or `off`: steps on a GPU are recorded and replayed.
  std::string graph = "auto";
  // Empty: take no hashes.
  std::string hashes = {};
  bool hash_gradients = false;

  // Ranks that are processes add up as Gloo does.
  Result<Reducer> MakeReducer(bool processes, c10::DeviceType device) const;
  Result<OptimizerOptions> Optimizer() const;
  // What records steps, for SessionOptions: empty on CPUs, and if `graph` is off.
  std::function<Result<std::unique_ptr<RunRecorder>>()> Recorder(c10::Device device) const;
  // Flags that mean nothing without others.
  Status Check() const;
};

}  // namespace heddle
