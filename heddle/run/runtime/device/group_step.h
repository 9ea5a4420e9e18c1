// GroupStep: runs a group of nodes (heddle/core/kernel/groups.h) with its kernels.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "heddle/core/kernel/program.h"
#include "heddle/run/runtime/backend.h"
#include "heddle/run/runtime/device/kernel_backend.h"

namespace heddle::run {

// Whether kernels can read the tensor: contiguous, and aligned to 16 bytes.
bool IsPlain(const at::Tensor& tensor);

// The kernels of a group, and the values that they read and write.
struct GroupWork {
  std::shared_ptr<const GroupKernel> kernel;
  std::vector<ValueId> inputs;
  std::vector<ValueId> outputs;
  std::optional<NormWeightGradient> weight;
  // Null: ATen computes the gradient of the weight.
  std::shared_ptr<const GroupKernel> weight_kernel;
};

class GroupStep : public Step {
 public:
  static Result<std::unique_ptr<GroupStep>> Make(const RunPlan& plan, const KernelGroup& group,
                                                 GroupWork work);

  // Runs the kernels, or the nodes through ATen if the layout of a tensor is not supported.
  void Run(size_t at, Tensors& values, Scratch& scratch) const override;
  // Whether kernels and ATen give equal bits for the same random and special values.
  bool IsProved() const;

 private:
  using Steps = std::vector<std::unique_ptr<Step>>;

  GroupStep(const RunPlan& plan, const KernelGroup& group, GroupWork work)
      : Step(Turn::kAlone), plan_(plan), group_(group), work_(std::move(work)) {}

  bool RunKernels(size_t at, Tensors& values, Scratch& scratch) const;
  void RunWeightGradient(Tensors& values) const;
  // Returns tensors with the same numbers for every value that the group reads.
  Tensors ProofValues(bool special) const;
  bool HasSameBits(bool special) const;

  const RunPlan& plan_;
  KernelGroup group_;
  GroupWork work_;
  // The recomputed nodes, then the nodes of the group.
  Steps nodes_;
  // Views that other nodes read.
  Steps views_;
};

}  // namespace heddle::run
