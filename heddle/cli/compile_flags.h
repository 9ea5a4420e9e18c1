// The flags of the commands that take a captured graph to the one that runs.
#pragma once

#include <memory>
#include <optional>

#include "heddle/cli/cli.h"
#include "heddle/cli/flags.h"
#include "heddle/compile/adjust_pipeline.h"
#include "heddle/search/find_plan.h"

namespace heddle {

// --time-limit of the commands that find plans.
struct TimeLimitFlag {
  std::string text = {};

  // `who` stops then.
  void Declare(Flags& flags, std::string_view who);
  // So much time, and the work of it; unless it is given, the work alone that is usual.
  Result<search::Allowance> Parse() const;
};

struct CompileFlags {
  explicit CompileFlags(std::string_view usual = "none") : usual_pipeline(usual) {}

  // Empty: final.
  std::string stage = {};
  // The pipeline that runs if the user names none.
  std::string_view usual_pipeline;
  // The name of a pipeline, or a file; or a text.
  std::string pipeline = {};
  std::string passes = {};
  std::string disabled = {};
  // Options of passes; empty: as the pipeline has them.
  std::string reshard = {};
  std::string bucket_order = {};
  std::string bucket_plan = {};
  std::string prefetch_forward = {};
  std::string prefetch_backward = {};
  std::string prefetch_bytes = {};
  bool async_tensor_parallel = false;
  // TorchTitan's words; empty: none.
  std::string checkpoint_mode = {};
  std::string checkpoint_option = {};
  bool reduce_first = false;
  std::string expert_rows = "exact";
  // The most that a step may need of a device; empty: no limit.
  std::string memory_budget = {};
  bool has_budget = false;
  bool remarks = false;
  bool time = false;
  compile::ManagerOptions manager = {};
  std::shared_ptr<const GivenFlags> given = {};

  // Commands that write no graph have no --stage.
  void Declare(Flags& flags, bool with_stage = true);
  // --memory.budget, for commands in which it limits the whole step.
  void DeclareBudget(Flags& flags);
  // The pipeline as reports name it, for a plan.
  std::string PipelineName(const compile::PlanDecisions& decisions) const;
  // For a plan: its statements and the flags together. Fails for a flag that contradicts a
  // statement. With `want_text` the report has the graph of the stage asked for.
  Result<search::CompileJob> Job(const compile::Plan& plan, bool want_text) const;
  // The cluster that the step is made fast on: the plan's, or that of --cluster. Fails if the user
  // gave another one than the plan's.
  Result<std::string> ClusterOf(const compile::Plan& plan, const std::string& cluster) const;
  // Remarks and times, to standard error, where asked for.
  void Print(const compile::CompileReport& report, const Streams& streams) const;
  // Flags that had no effect, to standard error; --remarks lists them already.
  void PrintNotes(const compile::CompileReport& report, const Streams& streams) const {
    if (!remarks) heddle::PrintNotes(report.notes, streams);
  }

 private:
  Result<std::string> PipelineText() const;
  Result<compile::PipelineChanges> Changes() const;
  // The policy of `checkpoint` that the flags name; none if they do not.
  Result<std::optional<std::string>> CheckpointPolicyName() const;
  // Adds what the flags decide to `decisions`; `notes` gets flags that have no effect.
  Status Decide(compile::PlanDecisions& decisions, std::vector<std::string>& notes) const;
  Status DecidePipeline(compile::PlanDecisions& decisions, std::vector<std::string>& notes) const;
  Status DecideMemory(compile::PlanDecisions& decisions) const;
};

}  // namespace heddle
