// Matrix products with an algorithm of cuBLASLt that was measured to be faster than ATen's choice.
//
// `heddle tune` measures and stores algorithms (matmul_tuner.h). Before a product is used, its bits
// are compared with those of at::mm.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "heddle/run/cuda/blas_lt.h"
#include "heddle/run/cuda/file_cache.h"
#include "heddle/run/runtime/backend.h"
#include "heddle/run/runtime/device/kernel_backend.h"
#include "heddle/run/runtime/device/kernel_device.h"

namespace heddle::run {

// The shape of an aten.mm of bf16 tensors. An operand is transposed if the graph transposes it.
// Nullopt for other nodes, and for sizes that depend on the rank.
std::optional<MatmulShape> MatmulShapeOf(const Graph& graph, NodeId node);

// Operands of at::mm with the same random numbers in every process, stored as `shape` states.
std::pair<at::Tensor, at::Tensor> MakeOperands(const MatmulShape& shape, c10::Device device);

// The measured time of a shape, and the fastest algorithm with the bits of at::mm.
struct MatmulChoice {
  double aten_us = 0;
  double best_us = 0;
  // Nullopt if no algorithm is faster than ATen's choice.
  std::optional<MatmulAlgorithm> algorithm;
};

// The choices of one GPU, stored in files.
class MatmulChoices {
 public:
  // `machine` names everything that a choice depends on (MatmulMachine).
  MatmulChoices(std::string folder, std::string machine)
      : files_(std::move(folder), "matmul"), machine_(std::move(machine)) {}

  std::optional<MatmulChoice> Find(const MatmulShape& shape) const;
  Status Store(const MatmulShape& shape, const MatmulChoice& choice) const;

 private:
  std::string KeyOf(const MatmulShape& shape) const;

  FileCache files_;
  std::string machine_;
};
// The GPU, the versions of cuBLASLt and libtorch, and whether ATen must be deterministic.
std::string MatmulMachine(const BlasLt& library, const KernelDevice& device);

// Computes a product from {A, B}, as the shape stores them, into {C}. Fails if the algorithm does
// not fit this GPU. `device` must outlive the kernel.
Result<std::unique_ptr<GroupKernel>> MakeMatmulKernel(const BlasLt& library,
                                                      const KernelDevice& device,
                                                      const MatmulShape& shape,
                                                      const MatmulAlgorithm& algorithm);
// Whether the kernel has the bits of at::mm for MakeOperands.
bool ProvesMatmul(const GroupKernel& kernel, const MatmulShape& shape, c10::Device device);

// Runs an aten.mm with a kernel, or with ATen if the strides or addresses of its operands are not
// those of the shape.
Result<std::unique_ptr<Step>> MakeMatmulStep(const RunPlan& plan, NodeId node,
                                             const MatmulShape& shape,
                                             std::shared_ptr<const GroupKernel> kernel);

}  // namespace heddle::run
