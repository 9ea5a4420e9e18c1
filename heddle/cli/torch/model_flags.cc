#include "heddle/cli/torch/model_flags.h"

#include <ATen/Context.h>

#include <ostream>

#include "heddle/base/text.h"
#include "heddle/cli/choice.h"
#include "heddle/cost/cluster/cluster.h"
#include "heddle/hf/folder.h"
#include "heddle/hf/load.h"
#include "heddle/train/device.h"
#include "heddle/train/exact.h"

namespace heddle {

constexpr std::string_view kDeviceFlag = "--runtime.device";

void ModelFlags::Declare(Flags& flags, const std::string* of_cluster) {
  cluster = of_cluster;
  flags.Option("--model", model,
               "the family; `heddle models` lists them; or hf, the model that config.json at "
               "--checkpoint.initial_load_path describes");
  flags.Option("--flavor", flavor, "the size");
  flags.Option("--checkpoint.initial_load_path", load_path,
               "weights to begin with: a .safetensors file of Heddle's whole weights, or a Hugging "
               "Face folder");
  flags.Option("--training.local_batch_size", local_batch_size,
               "sequences on each data-parallel rank");
  flags.Option("--training.seq_len", seq_len, "tokens in a sequence");
  flags.Option(
      "--precision", precision,
      "what the step computes with: bf16, f32 or f64; parameters are f32, or f64 with f64");
  flags.Option("--attention", attention,
               "flash or cudnn, one fused kernel; math, its parts; or fastest, the first of cudnn, "
               "flash and math that has the device, the precision and the size of heads");
  flags.Option(kDeviceFlag, device,
               fmt::format("cpu or cuda: device whose kernels the step uses (default: {})",
                           cluster != nullptr ? "the device type of --cluster" : "cpu"));
  flags.AcceptOld("--device", kDeviceFlag);
  flags.Option("--training.loss_divisor", loss_divisor,
               "what the summed loss is divided by: valid_tokens, counted in the step over all "
               "ranks, labels of -100 left out; or all_tokens, a constant");
  flags.Option("--training.z_loss", z_loss,
               "this times the square of each token's log normaliser is added to the loss");
  flags.Option("--training.aux_loss", aux_loss,
               "this times how unevenly each sequence uses the experts, 1 where it uses all alike, "
               "is added to the loss by every mixture of experts");
  for (const ConfigField& field : ConfigFields()) {
    std::string name(field.name);
    std::string flag = "--model." + name;
    std::string help = "instead of the flavor's " + name;
    if (field.size != nullptr) flags.Option(flag, sizes[name], help);
    if (field.number != nullptr) flags.Option(flag, numbers[name], help);
    if (field.choose != nullptr)
      flags.Option(flag, choices[name], help + ": " + Join(field.choices, ", "));
  }
}

Status ModelFlags::CheckNoWeights() const {
  if (load_path.empty() || model == "hf") return Done{};
  return Error(Diag::kUsage,
               "--checkpoint.initial_load_path is given, and no weight is loaded here; --model=hf "
               "takes the model from its config.json");
}

Result<ParamSource> ModelFlags::Params(Model& made, uint64_t seed) const {
  if (!load_path.empty()) return LoadParams(made, load_path);
  return InitialParams(made, seed);
}

Result<ModelConfig> ModelFlags::Config() const {
  if (model == "hf" && load_path.empty())
    return Error(Diag::kUsage,
                 "--model is hf, and --checkpoint.initial_load_path does not say which folder");
  HEDDLE_TRY(ModelConfig config,
             model == "hf" ? ReadHfConfig(load_path) : FindModel(model, flavor));
  for (const auto& [name, value] : sizes) {
    if (value) HEDDLE_RETURN_IF_ERROR(OverrideSize(config, name, *value));
  }
  for (const auto& [name, value] : numbers) {
    if (value) HEDDLE_RETURN_IF_ERROR(OverrideNumber(config, name, *value));
  }
  for (const auto& [name, value] : choices) {
    if (!value.empty()) HEDDLE_RETURN_IF_ERROR(OverrideChoice(config, name, value));
  }
  for (const auto& [name, value] : numbers) {
    if (value && name.starts_with("rope_scaling.") && config.rope.scaling == RopeScaling::kNone)
      return Error(Diag::kUsage,
                   "--model.{} is given, and --model.rope_scaling.kind is none: nothing is scaled",
                   name);
  }
  return config;
}

Result<Target> ModelFlags::ChooseTarget() const {
  HEDDLE_TRY(std::string name, DeviceName());
  return Choose<Target>(kDeviceFlag, name, {{"cpu", Target::kCpu}, {"cuda", Target::kCuda}});
}

Result<std::string> ModelFlags::DeviceName() const {
  if (!device.empty()) return device;
  if (cluster == nullptr) return std::string(Name(DeviceType::kCpu));
  HEDDLE_TRY(Cluster loaded, LoadCluster(*cluster));
  return std::string(Name(loaded.device.type));
}

std::string ModelFlags::DeviceNote(bool machine_has_gpu) const {
  if (!device.empty() || !machine_has_gpu) return "";
  return fmt::format(
      "note: running on the CPU, the default; this machine has a GPU, which {}=cuda uses\n",
      kDeviceFlag);
}

Result<c10::Device> ModelFlags::Open(int64_t local_rank, bool exact, const Streams& streams) const {
  HEDDLE_TRY(Target target, ChooseTarget());
  c10::DeviceType type = target == Target::kCuda ? c10::kCUDA : c10::kCPU;
  if (exact) MakeExact(type);
  if (local_rank == 0) streams.err << DeviceNote(at::hasCUDA());
  return OpenDevice(type, local_rank);
}

Result<Model> ModelFlags::Make(int64_t batch_ranks, bool sequence_parallel,
                               std::optional<LossDivisor> divisor) const {
  HEDDLE_TRY(ModelConfig config, Config());
  StepNumerics numerics;
  numerics.norms_apart = sequence_parallel;
  HEDDLE_TRY(numerics.compute,
             (Choose<DType>("--precision", precision,
                            {{"bf16", DType::kBF16}, {"f32", DType::kF32}, {"f64", DType::kF64}})));
  HEDDLE_TRY(numerics.attention, (Choose<AttentionKind>("--attention", attention,
                                                        {{"fastest", AttentionKind::kFastest},
                                                         {"cudnn", AttentionKind::kCudnn},
                                                         {"flash", AttentionKind::kFlash},
                                                         {"math", AttentionKind::kMath}})));
  HEDDLE_TRY(numerics.target, ChooseTarget());
  bool cuda = numerics.target == Target::kCuda;
  bool fused = numerics.attention == AttentionKind::kCudnn ||
               (cuda && numerics.attention == AttentionKind::kFlash);
  if (fused && !(cuda && numerics.compute == DType::kBF16))
    return Error(Diag::kBadChoice, "--attention is {}, which is for bf16 on cuda, not for {} on {}",
                 attention, precision, cuda ? "cuda" : "cpu");
  HEDDLE_TRY(numerics.loss_divisor,
             (Choose<LossDivisor>("--training.loss_divisor", loss_divisor,
                                  {{"valid_tokens", LossDivisor::kValidTokens},
                                   {"all_tokens", LossDivisor::kAllTokens}})));
  if (divisor) numerics.loss_divisor = *divisor;
  numerics.z_loss = z_loss;
  numerics.aux_loss = aux_loss;
  int64_t batch = 0;
  if (__builtin_mul_overflow(local_batch_size, batch_ranks, &batch))
    return Error(
        Diag::kModelSize,
        "--training.local_batch_size is {}, on {}; the whole batch does not fit into 64 bits",
        local_batch_size, Counted(batch_ranks, "rank"));
  return MakeModel(config, {.batch = batch, .seq_len = seq_len}, numerics);
}

void OptimizerFlags::Declare(Flags& flags) {
  flags.Switch("--without-optimizer", without,
               "leave the optimizer out of the step; by default the step clips by global norm "
               "(1.0) and updates with AdamW");
  flags.Switch("--with-optimizer", with, "include the optimizer, which is the default");
}

Result<std::optional<OptimizerOptions>> OptimizerFlags::Choose() const {
  if (with && without)
    return Error(Diag::kUsage,
                 "--with-optimizer conflicts with --without-optimizer; remove one of them");
  return without ? std::nullopt : std::optional(OptimizerOptions());
}

}  // namespace heddle
