#include "heddle/cli/torch/train/train_flags.h"

namespace heddle {

void TrainFlags::Declare(Flags& flags) {
  flags.Section("Training");
  flags.Option("--training.steps", steps, "number of steps", {.least = 1});
  flags.Option("--training.max_norm", optimizer.max_norm,
               "global norm that gradients are clipped to (0: no clipping)");
  flags.Option("--debug.seed", seed, "seed of initial weights and data", {.least = 0});
  flags.Section("Optimizer");
  flags.Option("--optimizer.name", optimizer_name, "optimizer: adamw");
  flags.Option("--optimizer.implementation", implementation,
               "fused (one kernel), or for-loop (several, like PyTorch without `fused`); their "
               "bits differ");
  flags.Option("--optimizer.lr", lr, "learning rate");
  flags.Option("--optimizer.beta1", optimizer.beta1, "decay rate of the first moment");
  flags.Option("--optimizer.beta2", optimizer.beta2, "decay rate of the second moment");
  flags.Option("--optimizer.eps", optimizer.eps, "term added to the root of the second moment");
  flags.Option("--optimizer.weight_decay", optimizer.weight_decay,
               "weight decay, multiplied by the learning rate");
  flags.Section("Runtime");
  flags.Option("--runtime.reducer", reducer,
               "order in which values of ranks are summed: rank, gloo, ring:CHANNELS or tree");
  flags.Option("--runtime.threads", threads,
               "threads that the ranks of one process share; results do not depend on it",
               {.least = 1});
  flags.Option(
      "--runtime.graph", graph,
      "auto: record a step on a GPU as a CUDA graph and replay it, where that is possible; "
      "off: launch every kernel from the host; results do not depend on it");
  flags.Option("--runtime.kernels", kernels,
               "auto: compute groups of ops on a GPU with kernels of Heddle's own, where they have "
               "the bits of ATen's; off: run every op with ATen; results do not depend on it");
  flags.Option("--hashes=FILE", hashes,
               "write one line of JSON per step, rank and parameter with the hash of that rank's "
               "shard of the master weights, and one with the loss as a hex float");
  flags.Path("--hashes");
  flags.Switch("--hash-gradients", hash_gradients,
               "with --hashes: also hash gradients before clipping; their names end in .grad");
}

}  // namespace heddle
