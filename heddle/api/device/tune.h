// api::Tune: chooses the algorithms of cuBLASLt for the matrix products of a step, by measurement.
//
//   TuneOptions options;
//   options.model.precision = DType::kBF16;
//   HEDDLE_TRY(std::vector<TunedProduct> products, api::Tune(options));
#pragma once

#include <functional>
#include <vector>

#include "heddle/api/step_graphs.h"
#include "heddle/run/runtime/device/matmul_tuner.h"

namespace heddle {

struct TunedProduct {
  run::MatmulShape shape;
  // Products of this shape in a step of one rank.
  int64_t count = 0;
  run::MatmulChoice choice;
};

struct TuneOptions {
  // The defaults of a job, in bf16 on a GPU.
  ModelOptions model = {.seq_len = 256, .device = run::Target::kCuda, .deterministic = true};
  ParallelOptions parallel = {};
  search::CompileSettings compile = {};
  // Measures shapes again that have a stored choice.
  bool again = false;
  // Called after each shape.
  std::function<void(size_t done, size_t shapes)> progress = {};
};

namespace api {

// Returns one entry per shape, in the order of the step, for products of bf16 tensors. Fails
// without a GPU.
Result<std::vector<TunedProduct>> Tune(const TuneOptions& options);

}  // namespace api
}  // namespace heddle
