// CompileSettings: how a step is compiled, in addition to its plan: the pipeline and its changes,
// activation checkpointing, a memory budget. Error messages call a field by its flag.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/compile/adjust_pipeline.h"
#include "heddle/search/find_plan.h"

namespace heddle::search {

struct CompileSettings {
  // The pipeline to use if neither these settings nor the plan specify one.
  std::string usual_pipeline = "fsdp";
  // The name of a pipeline or a file, or the pipeline as text.
  std::string pipeline = {};
  std::string passes = {};
  // Passes to leave out, separated by commas.
  std::string disabled = {};
  // Options of passes; empty: those of the pipeline.
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
  // HSDP: all-reduces whole gradients before scattering them.
  std::optional<bool> reduce_first = {};
  // Allocates rows of shared experts for the worst case.
  std::optional<bool> expert_buffers = {};
  // Memory budget of a step per device, such as `60GiB`; empty: none.
  std::string memory_budget = {};
  compile::ManagerOptions manager = {};

  // Returns the pipeline's name for reports on a plan.
  std::string PipelineName(const compile::PlanDecisions& decisions) const;
  // Combines the statements of the plan with these settings. Fails for a setting that contradicts a
  // statement.
  Result<CompileJob> JobFor(const compile::Plan& plan) const;

 private:
  Result<std::string> PipelineText() const;
  Result<compile::PipelineChanges> Changes() const;
  // Returns the policy of the pass `checkpoint`; nullopt if the settings specify none.
  Result<std::optional<std::string>> CheckpointPolicyName() const;
  // Add the settings to `decisions`. `notes` gets those without effect.
  Status Decide(compile::PlanDecisions& decisions, std::vector<std::string>& notes) const;
  Status DecidePipeline(compile::PlanDecisions& decisions, std::vector<std::string>& notes) const;
  Status DecideMemory(compile::PlanDecisions& decisions) const;
};

// Returns the cluster of a plan, or `cluster` if the plan states none. Fails if the plan states
// another cluster, and the user chose `cluster`.
Result<std::string> ClusterFor(const compile::Plan& plan, const std::string& cluster, bool chosen);

}  // namespace heddle::search
