#include "heddle/cli/torch/job_flags.h"

#include "heddle/core/base/text.h"
#include "heddle/price/cost/cluster/cluster.h"
#include "heddle/run/data/mixture.h"

namespace heddle {
namespace {

std::function<bool(std::string_view)> GivenIn(const Flags& flags) {
  return [set = flags.given()](std::string_view flag) { return set->Has(flag); };
}

bool IsBoolean(std::span<const std::string_view> choices) {
  return choices.size() == 2 && std::ranges::find(choices, "true") != choices.end();
}

}  // namespace

void DeclareModel(Flags& flags, ModelOptions& model) {
  model.given = GivenIn(flags);
  flags.Section("Model");
  flags.Option("--model", model.model,
               "model family (`heddle models` lists them), or hf: the model that config.json at "
               "--checkpoint.initial_load_path describes");
  flags.Option("--flavor", model.flavor, "size of the model");
  flags.Option("--checkpoint.initial_load_path=PATH", model.load_path,
               "initial weights: a .safetensors file of Heddle's, or a Hugging Face folder");
  flags.Path("--checkpoint.initial_load_path");
  flags.Section("Model sizes");
  for (const run::ConfigField& field : run::ConfigFields()) {
    std::string name(field.name);
    std::string flag = field.flag();
    std::string help =
        field.help.empty() ? "replace the flavor's " + name : std::string(field.help);
    if (field.size != nullptr) flags.Option(flag, model.sizes[name], help);
    if (field.number != nullptr) flags.Option(flag, model.numbers[name], help);
    if (field.text != nullptr) flags.Option(flag + "=NAMES", model.choices[name], help);
    if (field.choose == nullptr) continue;
    if (IsBoolean(field.choices)) {
      flags.Switch(flag, model.switches[name], help);
    } else {
      flags.Choice(flag, model.choices[name], help + ": " + Join(field.choices, ", "),
                   {field.choices.begin(), field.choices.end()});
    }
  }
}

void DeclareStep(Flags& flags, ModelOptions& model, const std::string* cluster) {
  model.cluster = cluster;
  DeclareModel(flags, model);
  flags.Section("Batch and numerics");
  flags.Option("--training.local_batch_size", model.local_batch_size,
               "sequences on each data-parallel rank");
  flags.Option("--training.seq_len", model.seq_len, "tokens in a sequence");
  flags.Choice<DType>(
      "--precision", model.precision,
      "type the step computes in: bf16, f32 or f64; parameters are f32, or f64 with f64",
      {{"bf16", DType::kBF16}, {"f32", DType::kF32}, {"f64", DType::kF64}});
  flags.Choice<run::AttentionKind>(
      "--attention", model.attention,
      "attention kernel: flash or cudnn (fused), math (separate ops), or fastest (the "
      "first of cudnn, flash and math that supports device, precision and head size; cudnn is "
      "not deterministic)",
      {{"fastest", run::AttentionKind::kFastest},
       {"cudnn", run::AttentionKind::kCudnn},
       {"flash", run::AttentionKind::kFlash},
       {"math", run::AttentionKind::kMath}});
  flags.Switch("--training.document_attention", model.document_attention,
               "attend within documents only, and count their positions from 0; implies "
               "--training.document_boundaries; bf16 on cuda");
  flags.Choice<run::Target>(
      kDeviceFlag, model.device,
      fmt::format("device whose kernels the step uses: cpu or cuda{}",
                  model.device         ? ""
                  : cluster != nullptr ? " (default: the device type of --cluster)"
                                       : " (default: cpu)"),
      {{"cpu", run::Target::kCpu}, {"cuda", run::Target::kCuda}});
  flags.Choice<run::LossDivisor>(
      "--training.loss_divisor", model.loss_divisor,
      "divisor of the summed loss: valid_tokens (labels other than -100, counted over all "
      "ranks in the step), or all_tokens (a constant)",
      {{"valid_tokens", run::LossDivisor::kValidTokens},
       {"all_tokens", run::LossDivisor::kAllTokens}});
  flags.Option("--training.z_loss", model.z_loss,
               "weight of the squared log normaliser of each token in the loss");
  flags.Option(
      "--training.aux_loss", model.aux_loss,
      "weight of the load-balancing loss of experts, per sequence and layer (1: balanced)");
}

void DeclareDeterministic(Flags& flags, ModelOptions& model) {
  flags.Switch(
      "--debug.deterministic", model.deterministic,
      "give the same bits in every run; =false allows oneDNN, threads and GPU kernels that "
      "add in any order, which is faster");
}

void DeclareOptimizer(Flags& flags, run::OptimizerOptions& optimizer) {
  flags.Section("Optimizer");
  flags.Choice<run::OptimizerName>(
      "--optimizer.name", optimizer.name,
      "AdamW, SGD, or Muon (for the matrices of layers; AdamW updates the other parameters)",
      {{"AdamW", run::OptimizerName::kAdamW},
       {"SGD", run::OptimizerName::kSgd},
       {"Muon", run::OptimizerName::kMuon}});
  flags.Choice<run::AdamW>(
      "--optimizer.implementation", optimizer.implementation,
      "fused (one kernel), or for-loop (several, like PyTorch without `fused`); "
      "their bits differ; SGD and Muon are always loops",
      {{"fused", run::AdamW::kFused}, {"for-loop", run::AdamW::kForLoop}});
  flags.Option("--optimizer.beta1", optimizer.beta1, "decay rate of the first moment");
  flags.Option("--optimizer.beta2", optimizer.beta2, "decay rate of the second moment");
  flags.Option("--optimizer.eps", optimizer.eps, "term added to the root of the second moment");
  flags.Option("--optimizer.weight_decay", optimizer.weight_decay,
               "weight decay, multiplied by the learning rate; SGD adds it to the gradient");
  flags.Switch("--optimizer.decay_vectors", optimizer.decay_vectors,
               "apply weight decay to norms and biases, too");
  flags.Option("--optimizer.momentum", optimizer.momentum,
               "momentum (default: 0 with SGD, 0.95 with Muon)");
  flags.Switch("--optimizer.nesterov", optimizer.nesterov,
               "Nesterov momentum (default: false with SGD, true with Muon)");
  flags.Option("--optimizer.dampening", optimizer.dampening,
               "part of the gradient that is left out of the momentum buffer");
  flags.Option("--optimizer.ns_steps", optimizer.ns_steps, "iterations of Newton-Schulz",
               {.least = 0, .most = 99});
  flags.Option("--optimizer.ns_coefficients", optimizer.ns_coefficients,
               "polynomial of an iteration");
  flags.Option("--optimizer.ns_eps", optimizer.ns_eps,
               "least norm that a matrix is divided by before the iterations");
  flags.Choice<run::MuonRate>(
      "--optimizer.adjust_lr_fn", optimizer.rate,
      "scale of a matrix's learning rate: original, sqrt(max(1, rows / columns)), or "
      "match_rms_adamw, 0.2 sqrt(max(rows, columns)), for learning rates that were tuned for AdamW",
      {{"original", run::MuonRate::kOriginal}, {"match_rms_adamw", run::MuonRate::kMatchRmsAdamW}});
  auto only = [&](std::initializer_list<const char*> names, const std::vector<std::string>& of) {
    for (const char* name : names)
      flags.RequiresValue(std::string("--optimizer.") + name, "--optimizer.name", of);
  };
  only({"implementation"}, {"AdamW"});
  only({"beta1", "beta2", "eps"}, {"AdamW", "Muon"});
  only({"momentum", "nesterov"}, {"SGD", "Muon"});
  only({"dampening"}, {"SGD"});
  only({"ns_steps", "ns_coefficients", "ns_eps", "adjust_lr_fn"}, {"Muon"});
}

void DeclareOptimizer(Flags& flags, run::OptimizerOptions& optimizer, bool& without) {
  DeclareOptimizer(flags, optimizer);
  flags.Switch("--without-optimizer", without,
               "leave the optimizer out of the step; by default the step clips by global norm "
               "(1.0) and updates the parameters");
}

void DeclareParallelism(Flags& flags, ParallelOptions& parallel) {
  parallel.given = GivenIn(flags);
  flags.Section("Parallelism");
  std::string names;
  for (size_t i = 0; i < compile::Presets().size(); ++i) {
    const compile::Preset& preset = *compile::Presets()[i];
    names += fmt::format("{}{}", names.empty() ? "" : ",", preset.axis());
    flags.Option(fmt::format("--parallelism.{}", preset.degree_flag), parallel.degrees[i],
                 fmt::format("{}; -1: the rest of --world_size", preset.help));
  }
  PipelineOptions& pipeline = parallel.pipeline;
  flags.Option("--parallelism.pipeline_parallel_degree", pipeline.degree,
               "ranks that run different stages of the model", {.least = 1, .most = 4096});
  flags.Option("--parallelism.pipeline_parallel_schedule", pipeline.schedule,
               "order of the stages' micro-batches: a name that `heddle schedule` lists");
  flags.Option("--parallelism.pipeline_parallel_schedule_csv=FILE", pipeline.schedule_csv,
               "schedule in the format of torch.distributed.pipelining, instead of a name");
  flags.Option("--parallelism.num_pp_microbatches", pipeline.micro_batches,
               "micro-batches of a rank's batch (0: one per sequence)", {.least = 0});
  flags.Option("--parallelism.pipeline_parallel_microbatch_size", pipeline.micro_batch_size,
               "sequences per micro-batch, instead of their number (0: not given)", {.least = 0});
  flags.Option("--parallelism.pipeline_parallel_layers_per_stage", pipeline.layers_per_stage,
               "layers per stage (0: one stage per rank, or two if the schedule needs several)",
               {.least = 0});
  flags.Option("--parallelism.pipeline_parallel_gather_every", pipeline.gather_every,
               "micro-batches per gather of a stage's weights, in forward and in backward: 1 takes "
               "the least memory (0: gather once per step)",
               {.least = 0});
  flags.Option("--parallelism.pipeline_parallel_reduce_every", pipeline.reduce_every,
               "micro-batches whose gradients are added before they are reduced (0: reduce once "
               "per step)",
               {.least = 0});
  flags.Option(
      "--parallelism.pipeline_parallel_first_stage_less_layers", pipeline.first_less_layers,
      "number of layers that the embedding counts as, to divide layers by number (default: "
      "by cost)",
      {.least = 0});
  flags.Option(
      "--parallelism.pipeline_parallel_last_stage_less_layers", pipeline.last_less_layers,
      "number of layers that the output counts as, to divide layers by number (default: by "
      "cost)",
      {.least = 0});
  flags.Choice<ContextMethod>(
      "--parallelism.context_parallel_method", parallel.context_method,
      "attention over context-parallel ranks: allgather (gather keys and values), ulysses "
      "(exchange positions for heads), ring (pass keys and values around in parts, which takes "
      "less "
      "memory and rounds differently), or auto (allgather or ulysses, whichever sends fewer bytes; "
      "allgather if a load balancer is named)",
      {{"auto", ContextMethod::kAuto},
       {"allgather", ContextMethod::kAllGather},
       {"ulysses", ContextMethod::kUlysses},
       {"ring", ContextMethod::kRing}});
  flags.Choice<ContextOrder>(
      "--parallelism.context_parallel_load_balancer", parallel.context_order,
      "positions of each context-parallel rank: headtail (one part from each end of the sequence, "
      "so that all ranks have the same work), none (consecutive), or auto (headtail unless ranks "
      "exchange heads)",
      {{"auto", ContextOrder::kAuto},
       {"headtail", ContextOrder::kHeadTail},
       {"none", ContextOrder::kNone}});
  flags.Option("--parallelism.expert_parallel_degree", parallel.expert,
               "ranks that share the experts of a layer, among the sharding and context-parallel "
               "ranks and, unless those share each expert, the tensor-parallel ranks",
               {.least = 1});
  flags.Option("--parallelism.expert_tensor_parallel_degree", parallel.expert_tensor,
               "tensor-parallel ranks that share each expert: 1, or all of them", {.least = 1});
  flags.Option("--parallelism.expert_rows_times", parallel.expert_times,
               "limit of the rows a rank receives for its experts, as a multiple of its own; more "
               "fails the run (0: no limit)",
               {.least = 0});
  flags.Switch("--parallelism.enable_sequence_parallel", parallel.sequence_parallel,
               "shard activations between blocks by position over the tensor-parallel ranks");
  flags.Switch("--parallelism.disable_loss_parallel", parallel.gather_logits,
               "gather logits instead of sharding the loss by vocabulary over the "
               "tensor-parallel ranks");
  flags.Option("--plan=FILE", parallel.plan_file,
               "plan to use instead of degrees; `heddle search` and `heddle plan` write plans");
  flags.Option("--parallelism.axis_names", parallel.axis_names,
               fmt::format("names of the mesh axes (default: {})", names));
  flags.Option("--parallelism.gradients", parallel.gradients,
               "reduction of gradients over ranks: sum, average, or a number that divides the sum");
  flags.Choice<bool>("--parallelism.tensor_gradients", parallel.wide_tensor_gradients,
                     "type in which gradients are reduced over the tensor-parallel ranks: narrow "
                     "(as computed, like eager) or wide (the parameter's)",
                     {{"narrow", false}, {"wide", true}});
  flags.Choice<bool>(
      "--training.mixed_precision_reduce", parallel.narrow_gradients,
      "type in which gradients are reduced over the data-parallel ranks: f32, or bf16 with "
      "--precision=bf16",
      {{"f32", false}, {"bf16", true}});
  flags.Option("--world_size", parallel.world, "number of ranks (0: the product of the degrees)",
               {.least = 0});
}

void DeclareTraining(Flags& flags, OptimizationOptions& options) {
  run::OptimizerOptions& optimizer = options.optimizer;
  flags.Section("Training");
  flags.Option("--training.steps", options.steps, "number of steps", {.least = 1});
  flags.Option("--training.max_norm", optimizer.max_norm,
               "global norm that gradients are clipped to (0: no clipping)");
  flags.Option("--debug.seed", options.seed, "seed of initial weights and data", {.least = 0});
  DeclareOptimizer(flags, optimizer);
  flags.Option("--optimizer.lr", options.lr, "learning rate");
  flags.Section("Runtime");
  flags.Option("--runtime.reducer", options.reducer,
               "order in which values of ranks are summed: rank, gloo, ring:CHANNELS or tree");
  flags.Option("--runtime.threads", options.threads,
               "threads that the ranks of one process share; results do not depend on it",
               {.least = 1});
  flags.Choice<bool>(
      "--runtime.graph", options.graph,
      "auto: record a step on a GPU as a CUDA graph and replay it, where that is possible; "
      "off: launch every kernel from the host; results do not depend on it",
      {{"auto", true}, {"off", false}});
  flags.Choice<bool>(
      "--runtime.kernels", options.kernels,
      "auto: compute groups of ops on a GPU with kernels of Heddle's own, where they have "
      "the bits of ATen's; off: run every op with ATen; results do not depend on it",
      {{"auto", true}, {"off", false}});
  flags.Option("--hashes=FILE", options.hashes,
               "write one line of JSON per step, rank and parameter with the hash of that rank's "
               "shard of the master weights, and one with the loss as a hex float");
  flags.Switch("--hash-gradients", options.hash_gradients,
               "with --hashes: also hash gradients before clipping; their names end in .grad");
  flags.Requires("--hash-gradients", "--hashes");
}

void DeclareLoop(Flags& flags, LoopOptions& loop) {
  flags.Section("Data");
  flags.Option(
      "--training.dataset", loop.dataset,
      "training data: text (Heddle's own sources), synthetic (random tokens), a file or folder, or "
      "several with weights, as in a.bin:0.7,b/:0.3 (docs/data.md)");
  flags.Path("--training.dataset", run::AbsoluteSources);
  flags.Option("--tokenizer=FOLDER", loop.tokenizer,
               "folder with a tokenizer.json: train on its tokens of a text or JSONL");
  flags.Option("--training.global_batch_size", loop.global_batch_size,
               "sequences per step over all ranks; larger than one batch: accumulate gradients (0: "
               "one batch)",
               {.least = 0});
  flags.Switch("--training.shuffle", loop.shuffle,
               "read sequences in an order drawn from the seed");
  flags.Switch("--training.document_boundaries", loop.document_boundaries,
               "do not predict across document boundaries");
  flags.Option("--training.document_end", loop.document_end,
               "token that ends a document, if the files do not state it");
  flags.Requires("--training.document_end",
                 "--training.document_boundaries,--training.document_attention");
  flags.Section("Learning rate");
  flags.Option("--lr_scheduler.warmup_steps", loop.warmup_steps,
               "steps in which the learning rate rises from 0", {.least = 0});
  flags.Choice<run::Decay>("--lr_scheduler.decay", loop.decay,
                           "decay curve: none, linear, cosine or sqrt",
                           {{Name(run::Decay::kNone), run::Decay::kNone},
                            {Name(run::Decay::kLinear), run::Decay::kLinear},
                            {Name(run::Decay::kCosine), run::Decay::kCosine},
                            {Name(run::Decay::kSqrt), run::Decay::kSqrt}});
  flags.Option("--lr_scheduler.decay_ratio", loop.decay_ratio,
               "fraction of steps, the last ones, in which the rate decays (1: all after warm-up)");
  flags.Option("--lr_scheduler.min_lr_factor", loop.min_lr_factor,
               "final rate, as a fraction of --optimizer.lr");
  flags.Section("Validation");
  flags.Option("--validation.interval", loop.validation_interval,
               "evaluate held-out data every N steps; 0: never", {.least = 0});
  flags.Option("--validation.steps", loop.validation_steps, "batches of held-out data",
               {.least = 1});
}

void DeclareOutput(Flags& flags, LoopOptions& loop) {
  flags.Section("Validation");
  flags.Enables("--validation.enable", loop.validation_interval,
                "false: do not validate, even with --validation.interval");
  flags.Section("Checkpoints");
  flags.Enables("--checkpoint.enable", loop.folder,
                "false: save no checkpoints, even with --checkpoint.folder");
  flags.Option("--checkpoint.folder=FOLDER", loop.folder,
               "folder for checkpoints; a run resumes from the newest one in it (default: save "
               "none)");
  flags.Option("--checkpoint.interval", loop.save_interval,
               "save every N steps and after the last; 0: only after the last", {.least = 0});
  flags.Option("--checkpoint.keep", loop.keep, "number of newest checkpoints to keep; 0: all",
               {.least = 0});
  flags.Switch("--checkpoint.async", loop.async, "continue training while files are written");
  flags.Option("--checkpoint.load_step", loop.load_step,
               "resume from this step instead of the newest");
  flags.Section("Metrics");
  flags.Option("--metrics.jsonl=FILE", loop.jsonl,
               "file that gets one line of JSON per step (default: metrics.jsonl in "
               "--checkpoint.folder)");
  flags.Enables("--metrics.enable_tensorboard", loop.tensorboard,
                "false: write no TensorBoard events, even with --metrics.tensorboard");
  flags.Option("--metrics.tensorboard=FOLDER", loop.tensorboard, "folder for TensorBoard events");
  flags.Option("--metrics.wandb=FOLDER", loop.wandb,
               "folder for an offline run of Weights & Biases, which wandb sync uploads "
               "(docs/tracking.md)");
  flags.Option("--metrics.sample_every", loop.sample_every,
               "generate text with the current weights every N steps, with all ranks in one "
               "process; 0: never",
               {.least = 0});
  flags.Option("--metrics.sample_prompt=TEXT", loop.sample_prompts,
               "start of the text (default: a newline); may be repeated; without --tokenizer, "
               "models of token files take numbers separated by commas");
  flags.Requires("--metrics.sample_prompt", "--metrics.sample_every");
  flags.Option("--metrics.sample_tokens", loop.sample_tokens, "tokens to generate per prompt",
               {.least = 1});
  flags.Requires("--metrics.sample_tokens", "--metrics.sample_every");
  flags.Option(
      "--metrics.cluster", loop.cluster,
      "cluster whose peak FLOP/s MFU is computed against: a name, or a JSON file (default: "
      "the one with this machine's GPU)");
  flags.Path("--metrics.cluster", [](const std::string& value) {
    return price::IsClusterPath(value) ? AbsolutePath(value) : value;
  });
  flags.Option("--metrics.log_freq", loop.log_every, "print every N steps", {.least = 1});
  flags.Option("--profile", loop.profile,
               "write a Chrome trace of COUNT steps, or of START:COUNT (COUNT alone starts after "
               "warm-up)");
  flags.Option("--profile-dir=FOLDER", loop.profile_dir,
               "folder for traces (default: profile in --checkpoint.folder)");
  flags.Section("Faults");
  flags.Choice<run::BadLossPolicy>(
      "--fault.on_nan", loop.on_nan,
      "action on a loss that is not finite: stop, or skip the step, which keeps "
      "a copy of the state",
      {{"stop", run::BadLossPolicy::kStop}, {"skip", run::BadLossPolicy::kSkip}});
  flags.Choice<run::BadLossPolicy>(
      "--fault.on_spike", loop.on_spike,
      "action on a loss far above the last 20: ignore, stop, or skip the step",
      {{"ignore", run::BadLossPolicy::kIgnore},
       {"stop", run::BadLossPolicy::kStop},
       {"skip", run::BadLossPolicy::kSkip}});
  flags.Option("--fault.spike_factor", loop.spike_factor,
               "multiple of the mean of the last 20 losses that counts as a spike");
  flags.Option("--fault.max_restarts", loop.max_restarts,
               "with --nproc: restarts of a job that lost a rank", {.least = 0});
}

Result<ParallelOptions> WithPlan(ParallelOptions parallel, const Streams& streams) {
  if (parallel.plan_file == "-") {
    HEDDLE_TRY(parallel.plan_text, ReadInput(parallel.plan_file, streams));
  }
  return parallel;
}

}  // namespace heddle
