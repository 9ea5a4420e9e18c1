#include "heddle/cli/flags/foreign_keys.h"

#include <algorithm>
#include <iterator>

#include "heddle/core/base/text.h"

namespace heddle {
namespace {

constexpr ForeignAction kAlias = ForeignAction::kAlias;
constexpr ForeignAction kRefused = ForeignAction::kRefused;
constexpr ForeignAction kIgnored = ForeignAction::kIgnored;

constexpr std::string_view kSplitPoints =
    "use --parallelism.pipeline_parallel_layers_per_stage, or the statement `stages` of a plan";
constexpr std::string_view kContextMethod =
    "use --parallelism.context_parallel_method=ring for ring attention, or allgather or ulysses";
constexpr std::string_view kNoQuantization = "Heddle has no float8 or MX training yet";
constexpr std::string_view kProfiler =
    "use `heddle train --profile=COUNT`, or `heddle sim --trace` for a simulated timeline";
constexpr std::string_view kNoSnapshot =
    "Heddle has no memory snapshots yet; `heddle plan` reports the peak memory";
constexpr std::string_view kNoWandb =
    "--metrics.wandb=FOLDER writes an offline run, which `wandb sync` uploads";
constexpr std::string_view kNoTorchFt =
    "Heddle has no TorchFT yet; --fault.max_restarts restarts a job that lost a rank";
constexpr std::string_view kNoPython = "Heddle loads no Python modules";
constexpr std::string_view kAlwaysCompiled = "Heddle always compiles the step";
constexpr std::string_view kNoTokenizer =
    "Heddle reads no tokenizer; docs/data.md describes its datasets";
constexpr std::string_view kNoDumpFolder = "each output has a flag that names its file or folder";
constexpr std::string_view kShowConfig = "use --config-show, which prints the job";
constexpr std::string_view kSavedConfig = "a run writes job.toml next to its checkpoints";
constexpr std::string_view kNoLoader = "Heddle has no data loader processes";
constexpr std::string_view kNoGarbage = "Heddle has no Python garbage collector";
constexpr std::string_view kNoRecorder = "Heddle has no flight recorder";
constexpr std::string_view kNoEagerCheckpoint = "Heddle recomputes in the compiled graph";
constexpr std::string_view kHeldOut =
    "Heddle validates on held-out sequences of training.dataset, in batches of training";

// Sections in the order of TorchTitan's JobConfig, with old and new names of a key next to each
// other. Specific keys precede the `*` of their section.
constexpr ForeignKey kForeignKeys[] = {
    // Other spellings of Heddle's own flags.
    {"device", kAlias, "runtime.device", {}, {}, /*hints=*/true},
    {"with-optimizer", kAlias, "without-optimizer", {}, "true=false|false=true"},
    // Short names.
    {"dp", kAlias, "parallelism.data_parallel_shard_degree"},
    {"fsdp", kAlias, "parallelism.data_parallel_shard_degree"},
    {"dp_shard", kAlias, "parallelism.data_parallel_shard_degree"},
    {"dp_replicate", kAlias, "parallelism.data_parallel_replicate_degree"},
    {"tp", kAlias, "parallelism.tensor_parallel_degree"},
    {"ep", kAlias, "parallelism.expert_parallel_degree"},
    {"etp", kAlias, "parallelism.expert_tensor_parallel_degree"},
    {"pp", kAlias, "parallelism.pipeline_parallel_degree"},
    {"cp", kAlias, "parallelism.context_parallel_degree"},
    {"nproc_per_node", kAlias, "nproc"},
    {"module", kAlias, "model"},
    // [job]
    {"job.config_file", kAlias, "config"},
    {"job.description", kIgnored, "Heddle uses no description"},
    {"job.dump_folder", kIgnored, kNoDumpFolder},
    {"dump_folder", kIgnored, kNoDumpFolder},
    {"job.print_config", kRefused, kShowConfig, "false"},
    {"debug.print_config", kRefused, kShowConfig, "false"},
    {"job.save_config_file", kIgnored, kSavedConfig},
    {"debug.save_config_file", kIgnored, kSavedConfig},
    {"job.use_for_integration_test", kIgnored, "it marks tests of TorchTitan"},
    {"job.custom_config_module", kRefused, kNoPython, ""},
    {"experimental.custom_import", kRefused, kNoPython, ""},
    {"experimental.custom_args_module", kRefused, kNoPython, ""},
    // [profiling]
    {"profiling.enable_profiling", kRefused, kProfiler, "false"},
    {"profiler.enable_profiling", kRefused, kProfiler, "false"},
    {"profiling.enable_memory_snapshot", kRefused, kNoSnapshot, "false"},
    {"profiler.enable_memory_snapshot", kRefused, kNoSnapshot, "false"},
    {"profiling.*", kIgnored, kProfiler},
    {"profiler.*", kIgnored, kProfiler},
    // [metrics]
    {"metrics.enable_wandb", kRefused, kNoWandb, "false"},
    {"metrics.save_tb_folder", kAlias, "metrics.tensorboard"},
    {"metrics.disable_color_printing", kIgnored, "NO_COLOR=1 turns colors off", "false"},
    {"metrics.save_for_all_ranks", kRefused, "Heddle writes one log for all ranks", "false"},
    {"metrics.rank_0_only", kIgnored, "Heddle writes one log for all ranks", "true"},
    // [model]
    {"model.name", kAlias, "model"},
    {"model.flavor", kAlias, "flavor"},
    {"model.hf_assets_path", kIgnored, kNoTokenizer},
    {"hf_assets_path", kIgnored, kNoTokenizer},
    {"model.tokenizer_path", kIgnored, kNoTokenizer},
    {"model.converters", kRefused, kNoQuantization, ""},
    {"model.print_after_conversion", kIgnored, kNoQuantization, "false"},
    // [optimizer]
    {"optimizer.name", kAlias, "optimizer.name", {}, "adamw=AdamW|sgd=SGD|muon=Muon"},
    {"optimizer.early_step_in_backward", kRefused, "Heddle has no optimizer in backward yet",
     "false"},
    // [lr_scheduler]
    {"training.warmup_steps", kAlias, "lr_scheduler.warmup_steps"},
    {"lr_scheduler.decay_type", kAlias, "lr_scheduler.decay"},
    {"lr_scheduler.total_steps", kRefused, "Heddle's schedule spans --training.steps", ""},
    // [training]
    {"training.batch_size", kAlias, "training.local_batch_size"},
    {"training.global_batch_size", kAlias, "training.global_batch_size", "-1"},
    {"training.dataset_path", kRefused, "name the file or folder with training.dataset", ""},
    {"dataloader.dataset", kAlias, "training.dataset"},
    {"dataloader.dataset_path", kRefused, "name the file or folder with training.dataset", ""},
    {"training.dataloader.*", kIgnored, kNoLoader},
    {"dataloader.*", kIgnored, kNoLoader},
    {"training.mixed_precision_param", kAlias, "precision", {}, "bfloat16=bf16|float32=f32"},
    {"training.mixed_precision_reduce",
     kAlias,
     "training.mixed_precision_reduce",
     {},
     "bfloat16=bf16|float32=f32"},
    {"training.dtype", kRefused,
     "Heddle keeps parameters in f32; --precision=bf16 computes the step in bf16", "float32"},
    {"training.enable_cpu_offload", kRefused, "Heddle cannot move parameters to the host yet",
     "false"},
    {"training.gc_freq", kIgnored, kNoGarbage},
    {"training.gc_debug", kIgnored, kNoGarbage, "false"},
    {"training.compile", kIgnored, kAlwaysCompiled, "true"},
    {"training.data_parallel_shard_degree", kAlias, "parallelism.data_parallel_shard_degree"},
    {"training.data_parallel_replicate_degree", kAlias,
     "parallelism.data_parallel_replicate_degree"},
    {"training.tensor_parallel_degree", kAlias, "parallelism.tensor_parallel_degree"},
    {"training.seed", kAlias, "debug.seed"},
    {"training.deterministic", kAlias, "debug.deterministic"},
    // [parallelism]
    {"parallelism.enable_loss_parallel",
     kAlias,
     "parallelism.disable_loss_parallel",
     {},
     "true=false|false=true"},
    {"parallelism.enable_async_tensor_parallel", kAlias, "compile.async_tensor_parallel"},
    {"compile.enable_async_tensor_parallel", kAlias, "compile.async_tensor_parallel"},
    {"experimental.enable_async_tensor_parallel", kAlias, "compile.async_tensor_parallel"},
    {"parallelism.pipeline_parallel_split_points", kRefused, kSplitPoints, ""},
    {"parallelism.pipeline_parallel_microbatches", kAlias, "parallelism.num_pp_microbatches"},
    {"parallelism.pipeline_parallel_expert_parallel_overlap", kIgnored,
     "Heddle does not overlap the exchanges of a micro-batch with compute of another yet"},
    {"parallelism.module_fqns_per_model_part", kRefused, kSplitPoints, "None"},
    {"experimental.pipeline_parallel_degree", kAlias, "parallelism.pipeline_parallel_degree"},
    {"experimental.pipeline_parallel_schedule", kAlias, "parallelism.pipeline_parallel_schedule"},
    {"experimental.pipeline_parallel_microbatches", kAlias, "parallelism.num_pp_microbatches"},
    {"experimental.pipeline_parallel_split_points", kRefused, kSplitPoints, ""},
    {"parallelism.context_parallel_rotate_method", kRefused, kContextMethod, "allgather"},
    {"experimental.context_parallel_rotate_method", kRefused, kContextMethod, "allgather"},
    {"experimental.context_parallel_degree", kAlias, "parallelism.context_parallel_degree"},
    {"parallelism.context_parallel_ptrr_mask_key", kRefused,
     "--parallelism.context_parallel_load_balancer is headtail or none", "None"},
    {"parallelism.expert_parallel_comm_backend", kRefused, "Heddle has no DeepEP yet", "standard"},
    {"parallelism.enable_compiled_autograd", kIgnored, kAlwaysCompiled, "true"},
    {"experimental.enable_compiled_autograd", kIgnored, kAlwaysCompiled, "true"},
    {"parallelism.enable_fsdp_symm_mem", kRefused, "Heddle has no symmetric memory yet", "false"},
    {"parallelism.spmd_backend", kIgnored, "Heddle partitions the graph itself"},
    // [checkpoint]
    {"checkpoint.enable_checkpoint", kAlias, "checkpoint.enable"},
    {"checkpoint.load_step", kAlias, "checkpoint.load_step", "-1"},
    {"checkpoint.keep_latest_k", kAlias, "checkpoint.keep"},
    {"checkpoint.async_mode",
     kAlias,
     "checkpoint.async",
     {},
     "disabled=false|async=true|async_with_pinned_mem=true"},
    {"checkpoint.initial_load_model_only", kRefused,
     "Heddle reads only weights from checkpoint.initial_load_path; a run resumes from "
     "checkpoint.folder",
     "true"},
    {"checkpoint.initial_load_in_hf", kIgnored, "Heddle detects the format of initial weights",
     "true"},
    {"checkpoint.initial_load_in_hf_quantized", kRefused, kNoQuantization, "false"},
    {"checkpoint.last_save_model_only", kIgnored,
     "every checkpoint is complete; `heddle export` writes weights alone", "false"},
    {"checkpoint.last_save_in_hf", kRefused,
     "use `heddle export --hf`, which writes a checkpoint for Hugging Face", "false"},
    {"checkpoint.export_dtype", kIgnored, "`heddle export --dtype` chooses the type"},
    {"checkpoint.exclude_from_loading", kRefused, "Heddle loads whole checkpoints", ""},
    {"checkpoint.enable_first_step_checkpoint", kRefused,
     "use checkpoint.interval=1 to save the first step", "false"},
    {"checkpoint.create_seed_checkpoint", kRefused,
     "initial weights depend on debug.seed, not on the mesh, so none is needed", "false"},
    {"checkpoint.load_only", kRefused,
     "Heddle saves to the folder that it resumes from; copy the checkpoint", "false"},
    {"checkpoint.enable_ft_dataloader_checkpoints", kIgnored, kNoTorchFt},
    // [activation_checkpoint]
    {"activation_checkpoint.memory_budget", kIgnored,
     "--memory.budget of `heddle plan` limits the step's memory in bytes"},
    {"activation_checkpoint.early_stop", kIgnored, kNoEagerCheckpoint},
    {"activation_checkpoint.preserve_rng_state", kIgnored, kNoEagerCheckpoint},
    {"activation_checkpoint.determinism_check", kIgnored, kNoEagerCheckpoint},
    {"activation_checkpoint.debug", kIgnored, kNoEagerCheckpoint, "false"},
    {"activation_checkpoint.visualize_memory_budget_pareto", kRefused,
     "use `heddle memory --sweep --html`, which draws the curve", "false"},
    {"activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns", kIgnored,
     "Heddle's selective mode keeps its own list of ops"},
    // [compile]
    {"compile.enable", kIgnored, kAlwaysCompiled, "true"},
    {"compile.components", kIgnored, kAlwaysCompiled},
    {"compile.backend", kIgnored, kAlwaysCompiled},
    // [quantize] and its predecessors. model.converters turns it on.
    {"float8.enable_float8_linear", kRefused, kNoQuantization, "false"},
    {"quantize.*", kIgnored, kNoQuantization},
    {"float8.*", kIgnored, kNoQuantization},
    {"mx.*", kIgnored, kNoQuantization},
    // [comm]
    {"comm.train_timeout_seconds", kAlias, "runtime.timeout"},
    {"comm.init_timeout_seconds", kIgnored,
     "--runtime.timeout limits all waiting, of the first step too"},
    {"comm.mode", kRefused,
     "`heddle plan` needs no devices, and `heddle train` without --nproc runs all ranks in one "
     "process",
     "default"},
    {"comm.trace_buf_size", kIgnored, kNoRecorder},
    {"comm.save_traces_folder", kIgnored, kNoRecorder},
    {"comm.save_traces_file_prefix", kIgnored, kNoRecorder},
    // [memory_estimation]
    {"memory_estimation.enable", kRefused, "use `heddle plan`, which reports the memory of a step",
     "false"},
    {"memory_estimation.*", kIgnored, "`heddle plan` reports the memory of a step"},
    // [fault_tolerance]
    {"fault_tolerance.enable", kRefused, kNoTorchFt, "false"},
    {"fault_tolerance.*", kIgnored, kNoTorchFt},
    // [validation]
    {"validation.freq", kAlias, "validation.interval"},
    {"validator.freq", kAlias, "validation.interval"},
    {"validation.steps", kAlias, "validation.steps", "-1"},
    {"validator.steps", kAlias, "validation.steps"},
    {"validator.enable", kAlias, "validation.enable"},
    {"validation.dataset", kIgnored, kHeldOut},
    {"validation.dataset_path", kIgnored, kHeldOut},
    {"validation.local_batch_size", kIgnored, kHeldOut},
    {"validation.seq_len", kIgnored, kHeldOut},
    {"validation.dataloader.*", kIgnored, kHeldOut},
    // [debug]
    {"debug.deterministic_warn_only", kIgnored, "every op of Heddle has a deterministic kernel",
     "false"},
    {"debug.moe_force_load_balance", kRefused, "Heddle cannot force a balanced load yet", "false"},
    {"debug.enable_structured_logging", kIgnored, "use --metrics.jsonl"},
};

bool Matches(std::string_view pattern, std::string_view key) {
  if (!pattern.ends_with('*')) return pattern == key;
  pattern.remove_suffix(1);
  return key.starts_with(pattern);
}

}  // namespace

bool ForeignKey::IsOff(std::string_view value) const {
  // A null view lists nothing; an empty one lists the empty value.
  if (off.data() == nullptr) return false;
  std::vector<std::string_view> values = Split(off, '|');
  return std::ranges::find(values, value) != values.end();
}

std::string ForeignKey::Translate(std::string_view value) const {
  for (std::string_view pair : Split(values, '|')) {
    size_t equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == value)
      return std::string(pair.substr(equals + 1));
  }
  return std::string(value);
}

const ForeignKey* FindForeignKey(std::string_view key) {
  auto found = std::ranges::find_if(kForeignKeys,
                                    [&](const ForeignKey& row) { return Matches(row.key, key); });
  return found == std::end(kForeignKeys) ? nullptr : &*found;
}

}  // namespace heddle
