#include "heddle/cli/step/compile_flags.h"

#include <ostream>

#include "heddle/core/base/clock.h"
#include "heddle/core/base/text.h"

namespace heddle {

void TimeLimitFlag::Declare(Flags& flags, std::string_view who) {
  flags.Option(
      "--time-limit", text,
      fmt::format("time after which {} stops with the best plan, as in 500ms, 60s (default: a "
                  "deterministic work limit, about 10 s of one core, which gives the same plan on "
                  "every machine)",
                  who));
}

Result<search::WorkAmount> TimeLimitFlag::Parse() const {
  if (text.empty()) return search::AutoOptions().work;
  HEDDLE_TRY(Nanos limit, ParseDuration(text));
  return search::WorkAmount{search::WorkAmount::Work(Seconds(limit)).work, Seconds(limit)};
}

void DeclareStage(Flags& flags, compile::Stage& stage) {
  flags.Choice<compile::Stage>("--stage", stage,
                               "graph to write: captured, planned, lowered or final",
                               {{Name(compile::Stage::kCaptured), compile::Stage::kCaptured},
                                {Name(compile::Stage::kPlanned), compile::Stage::kPlanned},
                                {Name(compile::Stage::kLowered), compile::Stage::kLowered},
                                {Name(compile::Stage::kFinal), compile::Stage::kFinal}});
}

void CompileFlags::Declare(Flags& flags, bool with_budget) {
  flags.Section("Compilation");
  flags.Option("--compile.pipeline", pipeline,
               fmt::format("pipeline that runs after lowering: a name, or a file ending in "
                           "`.pipeline` (default: {})",
                           usual_pipeline));
  flags.Option("--compile.passes", passes,
               "pipeline as text instead: passes and pipelines, as in 'clean, bucket-by-unit'");
  flags.Option("--compile.disable_passes", disabled,
               "passes of the pipeline to leave out, separated by commas");
  flags.Choice("--compile.bucket_order", bucket_order,
               "order of tensors in a bucket: parameter, as FSDP2, or graph, for comparison",
               {"parameter", "graph"});
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
  flags.Choice<bool>("--parallelism.expert_rows", expert_buffers,
                     "memory for the rows of shared experts: exact (the default), or bound "
                     "(allocate for the worst case, so sizes are static)",
                     {{"exact", false}, {"bound", true}});
  flags.Section("Activation checkpointing");
  std::vector<std::string> modes = {"none", "full", "selective", "min-cut"};
  if (with_budget) modes.emplace_back("memory_budget");
  flags.Choice(
      "--activation_checkpoint.mode", checkpoint_mode,
      fmt::format("activations that backward recomputes: none, full (all of each block), "
                  "selective, {}min-cut (only inexpensive ops){}",
                  with_budget ? "" : "or ",
                  with_budget ? ", or memory_budget (as many as --memory.budget needs)" : ""),
      modes);
  flags.Option("--activation_checkpoint.selective_ac_option", checkpoint_option,
               "for selective: op (keep TorchTitan's list of ops; the default), or N (recompute "
               "every N-th block)");
  if (with_budget)
    flags.Option("--memory.budget", memory_budget,
                 "peak memory limit of a step on each device, as in 60GiB: the activations that "
                 "backward recomputes are searched, so that the step is fastest on the cluster");
  flags.Section("Debugging");
  flags.Switch("--remarks", remarks,
               "print transformations that passes declined, and why, to standard error");
  flags.Switch("--time", time, "print the time of each pass to standard error");
  flags.Option("--dump-dir=FOLDER", manager.dump_dir,
               "write the graph after each pass to this folder");
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
