// OptimizerBackend: optimizer steps as kernels over lists of tensors: norms of gradients, and
// clipping with AdamW. It also takes the casts that do not run because of these kernels.
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
  // `copied` are casts whose results are in `copies` (ArrangedGraph::copied). Parameters whose
  // updates have no kernel lose their copies. The references must outlive this object.
  OptimizerBackend(const RunPlan& plan, const Uses& uses, Kernels& kernels,
                   std::map<NodeId, int64_t> copied, std::shared_ptr<WeightCopies> copies);

  Result<CompiledNodes> Compile(NodeId first) override;
  // Casts that do not run: the kernels read their operands.
  const std::set<NodeId>& spared() const { return spared_; }
  // Casts that do not run: a copy has their result.
  const std::map<NodeId, int64_t>& copied() const { return copied_; }
  // Makes a step for casts in copied() that runs `rest`, too.
  std::unique_ptr<Step> MakeCopyStep(std::span<const NodeId> casts,
                                     std::unique_ptr<Step> rest) const;

 private:
  Result<CompiledNodes> CompileNorm(NodeId node);
  Result<CompiledNodes> CompileUpdates(NodeId first);
  void RefuseCopies(const AdamWRun& run);
  // Returns the spared casts that compute these values, for ATen.
  std::vector<NodeId> CastsOf(std::span<const ValueId> values) const;

  const RunPlan& plan_;
  OptimizerRuns runs_;
  std::map<NodeId, std::unique_ptr<AdamWKernel>> updates_;
  std::map<NodeId, std::unique_ptr<GroupKernel>> norms_;
  std::set<NodeId> spared_;
  std::map<NodeId, int64_t> copied_;
  // May be null if copied_ is empty.
  std::shared_ptr<WeightCopies> copies_;
};

}  // namespace heddle::run
