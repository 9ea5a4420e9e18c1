#include "heddle/run/train/exact.h"

#include <cstdlib>

#include <ATen/Context.h>
#include <ATen/Parallel.h>

namespace heddle::run {

void MakeExact(c10::DeviceType device) {
  at::set_num_threads(1);
  at::Context& context = at::globalContext();
  context.setUserEnabledMkldnn(false);
  if (device == c10::kCPU) return;
  // With a variable workspace, cuBLAS changes the order of its sums. A value set by the user takes
  // precedence.
  ::setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8", /*overwrite=*/0);
  context.setDeterministicAlgorithms(true, /*warn_only=*/false);
  context.setDeterministicFillUninitializedMemory(false);
  context.setDeterministicCuDNN(true);
  context.setBenchmarkCuDNN(false);
}

std::string_view ExactMode(c10::DeviceType device) {
  return device == c10::kCPU ? "exact mode: oneDNN off, one thread"
                             : "exact mode: deterministic kernels";
}

}  // namespace heddle::run
