// OptimizerBackend: optimizer steps as kernels over lists of tensors: norms of gradients, and
// clipping with AdamW.
#pragma once

#include <map>
#include <memory>
#include <set>

#include "heddle/core/analysis/uses.h"
#include "heddle/core/kernel/runs.h"
#include "heddle/run/runtime/backend.h"
#include "heddle/run/runtime/device/kernel_backend.h"

namespace heddle::run {

// Makes a step that does nothing.
std::unique_ptr<Step> MakeIdleStep();

class OptimizerBackend : public Backend {
 public:
  // All arguments must outlive this object.
  OptimizerBackend(const RunPlan& plan, const Uses& uses, Kernels& kernels);

  Result<CompiledNodes> Compile(NodeId first) override;
  // Casts that do not run: the kernels read their operands.
  const std::set<NodeId>& spared() const { return spared_; }

 private:
  Result<CompiledNodes> CompileNorm(NodeId node);
  Result<CompiledNodes> CompileUpdates(NodeId first);
  // Returns the spared casts that compute these values, for ATen.
  std::vector<NodeId> CastsOf(std::span<const ValueId> values) const;

  const RunPlan& plan_;
  OptimizerRuns runs_;
  std::map<NodeId, std::unique_ptr<AdamWKernel>> updates_;
  std::map<NodeId, std::unique_ptr<GroupKernel>> norms_;
  std::set<NodeId> spared_;
};

}  // namespace heddle::run
