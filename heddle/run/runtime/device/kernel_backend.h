// A backend with Heddle's own kernels, each for a run of nodes (runs.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "heddle/core/kernel/index_add.h"
#include "heddle/core/kernel/loss.h"
#include "heddle/core/kernel/program.h"
#include "heddle/core/kernel/runs.h"
#include "heddle/run/cuda/blas_lt.h"
#include "heddle/run/runtime/backend.h"
#include "heddle/run/runtime/rank_program.h"
#include "heddle/run/runtime/weight_copies.h"

namespace heddle::run {

class LossKernel {
 public:
  virtual ~LossKernel() = default;
  // `logits` are bf16 [rows, columns]. `gradient` has the same type, and may be the same tensor.
  // `picked` receives the log-probability of each row's label. `kinds` receives 0, `ignored`, or 1
  // for a label outside the row.
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
    // Receives the new parameter in bf16; may be undefined.
    at::Tensor copy = {};
  };
  // Updates all tensors in place. All are contiguous; gradients are f32 or bf16. `clip` is
  // undefined without clipping.
  virtual void Run(std::span<const Update> updates, const at::Tensor& lr, const at::Tensor& step,
                   const at::Tensor& clip) const = 0;
};

// A kernel of a group (heddle/core/kernel/groups.h), or a matrix product. All tensors of a group
// are contiguous.
class GroupKernel {
 public:
  virtual ~GroupKernel() = default;
  virtual void Run(std::span<const at::Tensor> inputs,
                   std::span<const at::Tensor> outputs) const = 0;
};

// Kernels of a device. Functions return null for a kernel that does not exist, or whose bits differ
// from ATen's.
class Kernels {
 public:
  virtual ~Kernels() = default;
  virtual std::unique_ptr<LossKernel> Loss(const LossRun& run) = 0;
  virtual std::unique_ptr<AdamWKernel> AdamW(const AdamWRun& run) = 0;
  // Inputs: f32 or bf16 tensors. Output: the squared norm of each, in f32.
  virtual std::unique_ptr<GroupKernel> SquaredNorm() = 0;
  // A product that `heddle tune` found to be faster than at::mm (matmuls.h).
  virtual std::shared_ptr<const GroupKernel> Matmul(const MatmulShape& shape) = 0;

  // Kernels of groups, which are not proved yet.
  virtual std::shared_ptr<const GroupKernel> Program(const KernelProgram& program) = 0;
  // Inputs: gradient and input of a norm [rows, width], and rstd [rows]. Output: [width]. The
  // number of rows must be a multiple of 256.
  virtual std::shared_ptr<const GroupKernel> NormWeight(int64_t width, DType dtype) = 0;
  // Inputs: self, index and source of an aten.index_add.
  virtual std::shared_ptr<const GroupKernel> IndexAdd(const IndexAddRun& add) = 0;
  // Casts each input from f32 to bf16, or back, to the output at the same position.
  virtual std::shared_ptr<const GroupKernel> Casts(DType from) = 0;

  // Returns the result of `prove` for a kernel; cached by `text`.
  virtual bool IsProved(const std::string& name, const std::string& text,
                        const std::function<bool()>& prove);

 protected:
  // Reports that a kernel is not used.
  virtual void Refuse(const std::string& name, std::string_view why) const = 0;

 private:
  std::map<std::string, bool> proofs_;
};

// Orders a graph for its kernels. Its backend accepts the runs and groups for which `kernels` has
// kernels. `kernels` must outlive the result. Without `copies`, parameters have no copies.
ArrangedKernels ArrangeKernels(const Graph& graph, Kernels& kernels,
                               const std::shared_ptr<WeightCopies>& copies = nullptr);

}  // namespace heddle::run
