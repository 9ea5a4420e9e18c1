#include "heddle/cli/torch/train/train_flags.h"

#include "heddle/cli/choice.h"
#include "heddle/runtime/device/graph_recorder.h"
#include "heddle/runtime/device/own_kernels.h"

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

std::function<Result<std::unique_ptr<RunRecorder>>()> TrainFlags::Recorder(
    c10::Device device) const {
  if (graph == "off" || !device.is_cuda()) return {};
  return [device] { return MakeGraphRecorder(device); };
}

std::unique_ptr<Kernels> TrainFlags::OwnKernels(
    c10::Device device, const std::function<void(const std::string&)>& notice) const {
  if (kernels == "off" || !device.is_cuda()) return nullptr;
  Result<std::unique_ptr<Kernels>> opened = OpenKernels(device, notice);
  if (opened.ok()) return *std::move(opened);
  notice("ATen runs every op: " + opened.diagnostics()[0].message);
  return nullptr;
}

Status TrainFlags::Check() const {
  HEDDLE_RETURN_IF_ERROR(
      Choose<bool>("--runtime.kernels", kernels, {{"auto", true}, {"off", false}}));
  HEDDLE_RETURN_IF_ERROR(Choose<bool>("--runtime.graph", graph, {{"auto", true}, {"off", false}}));
  if (hash_gradients && hashes.empty())
    return Error(Diag::kUsage, "--hash-gradients requires --hashes");
  return Done{};
}

BatchSource TrainFlags::Batches(const Model& model) const {
  return SyntheticBatches(model, static_cast<uint64_t>(seed));
}

}  // namespace heddle
