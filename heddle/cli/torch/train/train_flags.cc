#include "heddle/cli/torch/train/train_flags.h"

#include "heddle/cli/choice.h"

namespace heddle {

void TrainFlags::Declare(Flags& flags) {
  flags.Option("--training.steps", steps, "how many steps are trained", {.least = 1});
  flags.Option("--training.max_norm", optimizer.max_norm,
               "gradients are clipped to this norm; 0 for no clipping");
  flags.Option("--optimizer.name", optimizer_name, "adamw");
  flags.Option("--optimizer.implementation", implementation,
               "how AdamW is computed: fused, in one kernel, or for-loop, in several, as PyTorch "
               "does without `fused`; their bits differ");
  flags.Option("--optimizer.lr", lr, "the learning rate of AdamW");
  flags.Option("--optimizer.beta1", optimizer.beta1, "how slowly the first moment moves");
  flags.Option("--optimizer.beta2", optimizer.beta2, "how slowly the second moment moves");
  flags.Option("--optimizer.eps", optimizer.eps, "added to the root of the second moment");
  flags.Option("--optimizer.weight_decay", optimizer.weight_decay,
               "parameters shrink by this, times the learning rate");
  flags.Option("--runtime.reducer", reducer,
               "in which order values of ranks are added up: rank, gloo, ring:CHANNELS or tree");
  flags.Option("--runtime.threads", threads,
               "threads that the ranks of one process share; no bit depends on it", {.least = 1});
  flags.Option("--hashes", hashes,
               "where hashes go: a line of JSON for each step, rank and parameter, of the bytes of "
               "that rank's part of the master weights, and one with the loss as a hex float");
  flags.Path("--hashes");
  flags.Switch("--hash-gradients", hash_gradients,
               "hashes of gradients before clipping, too; their names end in .grad");
  flags.Option("--debug.seed", seed, "initial weights and data come from it", {.least = 0});
}

Result<Reducer> TrainFlags::MakeReducer(bool processes, c10::DeviceType device) const {
  HEDDLE_TRY(Reducer parsed, Reducer::Parse(reducer));
  if (processes && parsed.Format() != "gloo")
    return Error(Diag::kBadChoice, "--runtime.reducer is {}; processes add up as {}",
                 parsed.Format(), device == c10::kCPU ? "Gloo does: gloo" : "NCCL does");
  return parsed;
}

Result<OptimizerOptions> TrainFlags::Optimizer() const {
  HEDDLE_RETURN_IF_ERROR(Choose<bool>("--optimizer.name", optimizer_name, {{"adamw", true}}));
  OptimizerOptions options = optimizer;
  HEDDLE_TRY(options.implementation,
             (Choose<AdamW>("--optimizer.implementation", implementation,
                            {{"fused", AdamW::kFused}, {"for-loop", AdamW::kForLoop}})));
  return options;
}

Status TrainFlags::Check() const {
  if (hash_gradients && hashes.empty())
    return Error(Diag::kUsage, "--hash-gradients is given, and --hashes is not");
  return Done{};
}

BatchSource TrainFlags::Batches(const Model& model) const {
  return SyntheticBatches(model, static_cast<uint64_t>(seed));
}

}  // namespace heddle
