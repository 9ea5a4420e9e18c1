// CompileSettings: how a step is compiled, besides its plan: the pipeline and its changes, activation
// checkpointing, a memory budget. Messages name the fields by the flags that set them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/compile/adjust_pipeline.h"
#include "heddle/search/find_plan.h"

namespace heddle::search {

struct CompileSettings {
  // The pipeline that runs unless one is named here or in the plan.
  std::string usual_pipeline = "fsdp";
  // The name of a pipeline or a file; or the pipeline as text.
  std::string pipeline = {};
  std::string passes = {};
  // Passes to leave out, separated by commas.
  std::string disabled = {};
  // Options of passes; empty: as the pipeline has them.
  std::string reshard = {};
  std::string bucket_order = {};
  std::string bucket_plan = {};
  std::string prefetch_forward = {};
  std::string prefetch_backward = {};
  std::string prefetch_bytes = {};
  bool async_tensor_parallel = false;
  // TorchTitan's names; empty: none.
  std::string checkpoint_mode = {};
  std::string checkpoint_option = {};
  // HSDP: whole gradients are all-reduced before they are scattered.
  std::optional<bool> reduce_first = {};
  // Rows of shared experts are allocated for the worst case.
  std::optional<bool> expert_buffers = {};
  // Limit of the memory that a step needs of a device, as in `60GiB`; empty: none.
  std::string memory_budget = {};
  compile::ManagerOptions manager = {};

  // The pipeline as reports name it, for a plan.
  std::string PipelineName(const compile::PlanDecisions& decisions) const;
  // The statements of the plan and these settings together. Fails for a setting that contradicts a
  // statement.
  Result<CompileJob> JobFor(const compile::Plan& plan) const;

 private:
  Result<std::string> PipelineText() const;
  Result<compile::PipelineChanges> Changes() const;
  // The policy of the pass `checkpoint`; none if the settings name none.
  Result<std::optional<std::string>> CheckpointPolicyName() const;
  // Add the settings to `decisions`; `notes` gets the ones without effect.
  Status Decide(compile::PlanDecisions& decisions, std::vector<std::string>& notes) const;
  Status DecidePipeline(compile::PlanDecisions& decisions, std::vector<std::string>& notes) const;
  Status DecideMemory(compile::PlanDecisions& decisions) const;
};

// The cluster that a plan states; `cluster` if it states none. Fails if it states another one than
// `cluster`, and the user chose that.
Result<std::string> ClusterFor(const compile::Plan& plan, const std::string& cluster, bool chosen);

}  // namespace heddle::search
