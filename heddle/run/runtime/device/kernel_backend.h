// The backend whose steps are kernels of Heddle's own, each for a run of nodes (runs.h).
#pragma once

#include <memory>
#include <vector>

#include "heddle/run/runtime/backend.h"
#include "heddle/run/runtime/device/runs.h"

namespace heddle::run {

class LossKernel {
 public:
  virtual ~LossKernel() = default;
  // `logits` are bf16 [rows, columns]; `gradient` is like them, or the same tensor. `picked` gets
  // the log-probability of each row's label; `kinds` 0, `ignored`, or 1 for a label outside the row.
  virtual void Run(const at::Tensor& logits, const at::Tensor& gradient, const at::Tensor& labels,
                   const at::Tensor& picked, const at::Tensor& kinds,
                   const at::Tensor& scale) const = 0;
};

class AdamWKernel {
 public:
  virtual ~AdamWKernel() = default;
  struct Update {
    at::Tensor param;
    at::Tensor grad;
    at::Tensor average;
    at::Tensor square;
  };
  // Updates all tensors in place. All are contiguous. `clip` is undefined without clipping.
  virtual void Run(std::span<const Update> updates, const at::Tensor& lr, const at::Tensor& step,
                   const at::Tensor& clip) const = 0;
};

// Kernels of a device. A kernel that does not exist, or whose bits are not those of ATen, is null.
class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual std::unique_ptr<LossKernel> Loss(const LossRun& run) = 0;
  virtual std::unique_ptr<AdamWKernel> AdamW(const AdamWRun& run) = 0;
};

// Takes the runs that `kernels` has kernels for. `kernels` outlives it.
std::unique_ptr<Backend> MakeKernelBackend(const RunPlan& plan, Kernels& kernels);

}  // namespace heddle::run
