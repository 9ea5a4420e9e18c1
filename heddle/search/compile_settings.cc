#include "heddle/search/compile_settings.h"

#include <algorithm>

#include "heddle/compile/passes/passes.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"

namespace heddle::search {

std::string CompileSettings::PipelineName(const compile::PlanDecisions& decisions) const {
  if (decisions.pipeline) return *decisions.pipeline;
  if (!passes.empty()) return passes;
  return pipeline.empty() ? usual_pipeline : pipeline;
}

Result<std::string> CompileSettings::PipelineText() const {
  if (!passes.empty()) {
    if (!pipeline.empty())
      return Error(Diag::kUsage, "--compile.pipeline and --compile.passes are both given");
    return passes;
  }
  if (pipeline.empty()) return usual_pipeline;
  if (pipeline.ends_with(".pipeline")) return ReadFile(pipeline);
  if (compile::Passes().FindPipeline(pipeline) != nullptr) return pipeline;
  std::vector<std::string_view> names;
  for (const compile::PassTable::Named& named : compile::Passes().pipelines)
    names.push_back(named.name);
  return Error(Diag::kUnknownPass, "`{}` is not a pipeline; there are {}{}", pipeline,
               Join(names, ", "), NearestHint(pipeline, names));
}

Result<compile::PipelineChanges> CompileSettings::Changes() const {
  compile::PipelineChanges changes;
  if (!disabled.empty()) {
    for (std::string_view name : Split(disabled, ',')) changes.disabled.emplace_back(Trim(name));
  }
  if (async_tensor_parallel)
    changes.added.push_back(
        {"--compile.async_tensor_parallel", "async-tensor-parallel", "overlap"});
  auto set = [&](std::string_view flag, const std::string& value,
                 std::vector<std::string> of_passes, std::string option) {
    if (value.empty()) return;
    changes.settings.push_back(
        {fmt::format("--{}", flag), std::move(of_passes), std::move(option), value});
  };
  set("compile.bucket_order", bucket_order, {"bucket-by-unit", "bucket-by-size"}, "order");
  set("compile.prefetch_forward", prefetch_forward, {"prefetch"}, "forward");
  set("compile.prefetch_backward", prefetch_backward, {"prefetch"}, "backward");
  set("compile.prefetch_max_bytes", prefetch_bytes, {"prefetch"}, "max_bytes");
  if (!bucket_plan.empty()) {
    HEDDLE_TRY(std::string text, ReadFile(bucket_plan));
    set("compile.bucket_plan", Quoted(text), {"bucket-by-unit"}, "plan");
  }
  return changes;
}

Result<std::optional<std::string>> CompileSettings::CheckpointPolicyName() const {
  std::string_view mode = checkpoint_mode.empty() ? "none" : std::string_view(checkpoint_mode);
  bool by_budget = mode == "memory_budget";
  if (mode != "selective" && !checkpoint_option.empty())
    return Error(Diag::kUsage,
                 "--activation_checkpoint.selective_ac_option goes with "
                 "--activation_checkpoint.mode=selective; the mode is {}",
                 mode);
  if (by_budget) {
    if (memory_budget.empty())
      return Error(Diag::kUsage,
                   "--activation_checkpoint.mode=memory_budget needs --memory.budget");
    return std::optional<std::string>();
  }
  if (checkpoint_mode.empty()) return std::optional<std::string>();
  if (!memory_budget.empty())
    return Error(Diag::kUsage,
                 "--memory.budget searches what backward recomputes, and "
                 "--activation_checkpoint.mode={} decides it; remove one of them",
                 mode);
  if (checkpoint_option.empty() || checkpoint_option == "op")
    return std::optional(std::string(mode));
  auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!std::ranges::all_of(checkpoint_option, is_digit))
    return Error(Diag::kBadChoice,
                 "--activation_checkpoint.selective_ac_option: `{}` is neither `op` nor a number "
                 "of blocks",
                 checkpoint_option);
  return std::optional(fmt::format("layers:{}", checkpoint_option));
}

namespace {

Failure Contradiction(std::string_view flag, std::string_view value, std::string_view statement) {
  return Error(Diag::kUsage,
               "{}={} contradicts the plan, which states `{}`; remove the flag, or the statement",
               flag, value, statement);
}

// Returns a statement as the plan has it.
std::string StatementOf(compile::PlanDecisions only) {
  return std::string(Trim(FormatDecisions(only)));
}

}  // namespace

Status CompileSettings::DecideMemory(compile::PlanDecisions& decisions) const {
  HEDDLE_TRY(std::optional<std::string> policy, CheckpointPolicyName());
  if (policy && decisions.checkpoint && *policy != *decisions.checkpoint)
    return Contradiction("--activation_checkpoint.mode", *policy,
                         StatementOf({.checkpoint = decisions.checkpoint}));
  if (policy && !decisions.marks.empty())
    return Contradiction("--activation_checkpoint.mode", *policy,
                         StatementOf({.marks = {decisions.marks[0]}}));
  // Recomputing nothing is the default, which plans leave out.
  if (policy && policy != "none") decisions.checkpoint = policy;
  if (memory_budget.empty()) return Done{};
  HEDDLE_TRY(Bytes budget, ParseBudget(memory_budget));
  if (decisions.budget && *decisions.budget != budget)
    return Contradiction("--memory.budget", memory_budget,
                         StatementOf({.budget = decisions.budget}));
  if (!decisions.budget && decisions.decides_memory()) {
    std::string stated = decisions.checkpoint ? StatementOf({.checkpoint = decisions.checkpoint})
                                              : StatementOf({.marks = {decisions.marks[0]}});
    return Contradiction("--memory.budget", memory_budget, stated);
  }
  decisions.budget = budget;
  return Done{};
}

Status CompileSettings::DecidePipeline(compile::PlanDecisions& decisions,
                                       std::vector<std::string>& notes) const {
  HEDDLE_TRY(std::string text, PipelineText());
  HEDDLE_TRY(compile::PipelineChanges changes, Changes());
  bool named = !pipeline.empty() || !passes.empty();
  bool changed = !changes.added.empty() || !changes.settings.empty() || !changes.disabled.empty();
  if (!named && !changed) return Done{};
  std::string_view flag = !passes.empty() ? "--compile.passes" : "--compile.pipeline";
  HEDDLE_TRY(
      compile::Pipeline wanted,
      compile::ParsePipeline(named ? text : decisions.pipeline.value_or(text), compile::Passes()));
  HEDDLE_TRY(notes, compile::AdjustPipeline(changes, compile::Passes(), wanted));
  if (!decisions.pipeline) {
    decisions.pipeline =
        !changed && compile::Passes().FindPipeline(text) != nullptr ? text : Format(wanted);
    return Done{};
  }
  HEDDLE_TRY(compile::Pipeline stated,
             compile::ParsePipeline(*decisions.pipeline, compile::Passes()));
  if (Format(wanted) == Format(stated)) return Done{};
  if (!named && !changes.settings.empty())
    flag = changes.settings[0].flag;
  else if (!named)
    flag = changes.added.empty() ? "--compile.disable_passes" : changes.added[0].flag;
  std::string value = named                       ? PipelineName({})
                      : !changes.settings.empty() ? changes.settings[0].value
                      : !changes.added.empty()    ? std::string("true")
                                                  : disabled;
  return Contradiction(flag, value, StatementOf({.pipeline = decisions.pipeline}));
}

Status CompileSettings::Decide(compile::PlanDecisions& decisions,
                               std::vector<std::string>& notes) const {
  HEDDLE_RETURN_IF_ERROR(DecidePipeline(decisions, notes));
  HEDDLE_RETURN_IF_ERROR(DecideMemory(decisions));
  if (!reshard.empty()) {
    if (decisions.reshard.value_or(reshard) != reshard)
      return Contradiction("--parallelism.fsdp_reshard_after_forward", reshard,
                           StatementOf({.reshard = decisions.reshard}));
    decisions.reshard = reshard;
  }
  if (reduce_first) {
    if (decisions.reduce_first.value_or(*reduce_first) != *reduce_first)
      return Contradiction("--parallelism.reduce_before_scatter", *reduce_first ? "true" : "false",
                           StatementOf({.reduce_first = decisions.reduce_first}));
    decisions.reduce_first = reduce_first;
  }
  if (expert_buffers) {
    if (decisions.expert_buffers.value_or(*expert_buffers) != *expert_buffers)
      return Contradiction("--parallelism.expert_rows", *expert_buffers ? "bound" : "exact",
                           StatementOf({.expert_buffers = decisions.expert_buffers}));
    decisions.expert_buffers = expert_buffers;
  }
  return Done{};
}

Result<CompileJob> CompileSettings::JobFor(const compile::Plan& plan) const {
  CompileJob job{plan, {}};
  job.options.pipeline = usual_pipeline;
  HEDDLE_RETURN_IF_ERROR(Decide(job.plan.decisions, job.options.notes));
  job.options.manager = manager;
  return job;
}

Result<std::string> ClusterFor(const compile::Plan& plan, const std::string& cluster, bool chosen) {
  const std::optional<std::string>& stated = plan.decisions.cluster;
  if (stated && *stated != cluster && chosen)
    return Contradiction("--cluster", cluster, StatementOf({.cluster = stated}));
  return stated.value_or(cluster);
}

}  // namespace heddle::search
