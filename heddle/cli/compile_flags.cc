#include "heddle/cli/compile_flags.h"

#include <algorithm>
#include <ostream>

#include "heddle/compile/passes/passes.h"
#include "heddle/core/base/choice.h"
#include "heddle/core/base/clock.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "heddle/search/memory/choice.h"

namespace heddle {

void TimeLimitFlag::Declare(Flags& flags, std::string_view who) {
  flags.Option(
      "--time-limit", text,
      fmt::format("time after which {} stops with the best plan, as in 500ms, 60s (default: a "
                  "deterministic work limit, about 10 s of one core, which gives the same plan on "
                  "every machine)",
                  who));
}

Result<search::Allowance> TimeLimitFlag::Parse() const {
  if (text.empty()) return search::AutoOptions().allowance;
  HEDDLE_TRY(Nanos limit, ParseDuration(text));
  return search::Allowance{search::Allowance::Work(Seconds(limit)).work, Seconds(limit)};
}

void CompileFlags::Declare(Flags& flags, bool with_stage) {
  given = flags.given();
  flags.Section("Compilation");
  if (with_stage)
    flags.Option("--stage", stage,
                 "graph to write: captured, planned, lowered or final (default: final)");
  flags.Option("--compile.pipeline", pipeline,
               fmt::format("pipeline that runs after lowering: a name, or a file ending in "
                           "`.pipeline` (default: {})",
                           usual_pipeline));
  flags.Option("--compile.passes", passes,
               "pipeline as text instead: passes and pipelines, as in 'clean, bucket-by-unit'");
  flags.Option("--compile.disable_passes", disabled,
               "passes of the pipeline to leave out, separated by commas");
  flags.Option("--compile.bucket_order", bucket_order,
               "order of tensors in a bucket: parameter, as FSDP2, or graph, for comparison");
  flags.Option("--compile.bucket_plan=FILE", bucket_plan,
               "file with the modules that share a bucket, instead of one per unit: groups "
               "separated by `;`");
  flags.Option("--compile.prefetch_forward", prefetch_forward, "units that forward gathers ahead");
  flags.Option("--compile.prefetch_backward", prefetch_backward,
               "units that backward gathers ahead");
  flags.Option("--compile.prefetch_max_bytes", prefetch_bytes,
               "limit of the bytes that gathers in flight bring, as in 2GiB");
  flags.Switch("--compile.async_tensor_parallel", async_tensor_parallel,
               "split exposed tensor-parallel collectives and the ops around them into chunks "
               "where a simulation finds that faster (pass async-tensor-parallel)");
  flags.Option("--parallelism.fsdp_reshard_after_forward", reshard,
               "when to free gathered weights: always, never, or default (always, except the unit "
               "that backward needs first); per unit after a comma, as in "
               "default,layers.*=never");
  flags.Switch("--parallelism.reduce_before_scatter", reduce_first,
               "HSDP: all-reduce whole gradients, then scatter them; FSDP2 scatters first");
  flags.Option("--parallelism.expert_rows", expert_rows,
               "memory for the rows of shared experts: exact, or bound (allocate for the worst "
               "case, so sizes are static)");
  flags.Section("Activation checkpointing");
  flags.Option("--activation_checkpoint.mode", checkpoint_mode,
               "activations that backward recomputes: none, full (all of each block), selective, "
               "or min-cut (only inexpensive ops)");
  flags.Option("--activation_checkpoint.selective_ac_option", checkpoint_option,
               "for selective: op (keep TorchTitan's list of ops; the default), or N (recompute "
               "every N-th block)");
  flags.Section("Debugging");
  flags.Switch("--remarks", remarks,
               "print transformations that passes declined, and why, to standard error");
  flags.Switch("--time", time, "print the time of each pass to standard error");
  flags.Option("--dump-dir=FOLDER", manager.dump_dir,
               "write the graph after each pass to this folder");
  flags.Path("--compile.bucket_plan");
  flags.Path("--dump-dir");
}

void CompileFlags::DeclareBudget(Flags& flags) {
  has_budget = true;
  flags.Option("--memory.budget", memory_budget,
               "peak memory limit of a step on each device, as in 60GiB: what backward recomputes "
               "is searched, so that the step is fastest on the cluster");
}

std::string CompileFlags::PipelineName(const compile::PlanDecisions& decisions) const {
  if (decisions.pipeline) return *decisions.pipeline;
  if (!passes.empty()) return passes;
  return pipeline.empty() ? std::string(usual_pipeline) : pipeline;
}

Result<std::string> CompileFlags::PipelineText() const {
  if (!passes.empty()) {
    if (!pipeline.empty())
      return Error(Diag::kUsage, "--compile.pipeline and --compile.passes are both given");
    return passes;
  }
  if (pipeline.empty()) return std::string(usual_pipeline);
  if (pipeline.ends_with(".pipeline")) return ReadFile(pipeline);
  if (compile::Passes().FindPipeline(pipeline) != nullptr) return pipeline;
  std::vector<std::string_view> names;
  for (const compile::PassTable::Named& named : compile::Passes().pipelines)
    names.push_back(named.name);
  return Error(Diag::kUnknownPass, "`{}` is no pipeline; there are {}{}", pipeline,
               Join(names, ", "), NearestHint(pipeline, names));
}

Result<compile::PipelineChanges> CompileFlags::Changes() const {
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

Result<std::optional<std::string>> CompileFlags::CheckpointPolicyName() const {
  constexpr std::string_view kModes[] = {"none", "full", "selective", "min-cut"};
  std::string_view mode = checkpoint_mode.empty() ? "none" : std::string_view(checkpoint_mode);
  bool by_budget = has_budget && mode == "memory_budget";
  if (!by_budget && std::ranges::find(kModes, mode) == std::end(kModes))
    return Error(Diag::kBadChoice, "--activation_checkpoint.mode: `{}` is no mode; there are {}{}",
                 mode, Join(kModes, ", "), NearestHint(mode, kModes));
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

// A statement as the plan has it.
std::string StatementOf(compile::PlanDecisions only) {
  return std::string(Trim(FormatDecisions(only)));
}

}  // namespace

Status CompileFlags::DecideMemory(compile::PlanDecisions& decisions) const {
  HEDDLE_TRY(std::optional<std::string> policy, CheckpointPolicyName());
  if (policy && decisions.checkpoint && *policy != *decisions.checkpoint)
    return Contradiction("--activation_checkpoint.mode", *policy,
                         StatementOf({.checkpoint = decisions.checkpoint}));
  if (policy && !decisions.marks.empty())
    return Contradiction("--activation_checkpoint.mode", *policy,
                         StatementOf({.marks = {decisions.marks[0]}}));
  // Recomputing nothing is the default, which a plan leaves out.
  if (policy && policy != "none") decisions.checkpoint = policy;
  if (memory_budget.empty()) return Done{};
  HEDDLE_TRY(Bytes budget, search::ParseBudget(memory_budget));
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

Status CompileFlags::DecidePipeline(compile::PlanDecisions& decisions,
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

Status CompileFlags::Decide(compile::PlanDecisions& decisions,
                            std::vector<std::string>& notes) const {
  auto is_given = [&](std::string_view flag) { return given && given->Has(flag); };
  HEDDLE_RETURN_IF_ERROR(DecidePipeline(decisions, notes));
  HEDDLE_RETURN_IF_ERROR(DecideMemory(decisions));
  if (!reshard.empty()) {
    if (decisions.reshard.value_or(reshard) != reshard)
      return Contradiction("--parallelism.fsdp_reshard_after_forward", reshard,
                           StatementOf({.reshard = decisions.reshard}));
    decisions.reshard = reshard;
  }
  if (reduce_first || is_given("--parallelism.reduce_before_scatter")) {
    if (decisions.reduce_first.value_or(reduce_first) != reduce_first)
      return Contradiction("--parallelism.reduce_before_scatter", reduce_first ? "true" : "false",
                           StatementOf({.reduce_first = decisions.reduce_first}));
    decisions.reduce_first = reduce_first;
  }
  HEDDLE_TRY(bool buffers, (Choose<bool>("--parallelism.expert_rows", expert_rows,
                                         {{"exact", false}, {"bound", true}})));
  if (buffers || is_given("--parallelism.expert_rows")) {
    if (decisions.expert_buffers.value_or(buffers) != buffers)
      return Contradiction("--parallelism.expert_rows", expert_rows,
                           StatementOf({.expert_buffers = decisions.expert_buffers}));
    decisions.expert_buffers = buffers;
  }
  return Done{};
}

Result<search::CompileJob> CompileFlags::Job(const compile::Plan& plan, bool want_text) const {
  search::CompileJob job{plan, {}};
  job.options.pipeline = usual_pipeline;
  HEDDLE_RETURN_IF_ERROR(Decide(job.plan.decisions, job.options.notes));
  job.options.manager = manager;
  HEDDLE_TRY(compile::Stage asked, compile::ParseStage(stage.empty() ? "final" : stage));
  if (want_text) job.options.print = asked;
  return job;
}

Result<std::string> CompileFlags::ClusterOf(const compile::Plan& plan,
                                            const std::string& cluster) const {
  const std::optional<std::string>& stated = plan.decisions.cluster;
  if (stated && *stated != cluster && given && given->Has("--cluster"))
    return Contradiction("--cluster", cluster, StatementOf({.cluster = stated}));
  return stated.value_or(cluster);
}

void CompileFlags::Print(const compile::CompileReport& report, const Streams& streams) const {
  if (time) {
    streams.err << "--- time\n";
    for (const compile::PassRecord& record : report.passes) {
      streams.err << fmt::format("{:<24} {:>8.1f} ms\n",
                                 record.pass.substr(0, record.pass.find('{')),
                                 Seconds(record.time) * 1e3);
    }
  }
  if (!remarks) return;
  streams.err << "--- remarks\n";
  for (const std::string& note : report.notes) streams.err << note << "\n";
  for (const compile::PassRecord& record : report.passes) {
    for (const compile::Remark& remark : record.remarks) streams.err << Format(remark) << "\n";
  }
}

}  // namespace heddle
