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

void ModelFlags::DeclareModel(Flags& flags) {
  given = flags.given();
  flags.Section("Model");
  flags.Option("--model", model,
               "model family (`heddle models` lists them), or hf: the model that config.json at "
               "--checkpoint.initial_load_path describes");
  flags.Option("--flavor", flavor, "size of the model");
  flags.Option("--checkpoint.initial_load_path=PATH", load_path,
               "initial weights: a .safetensors file of Heddle's, or a Hugging Face folder");
  flags.Path("--checkpoint.initial_load_path");
  flags.Section("Model sizes");
  for (const ConfigField& field : ConfigFields()) {
    std::string name(field.name);
    std::string flag = "--model." + name;
    std::string help = "replace the flavor's " + name;
    if (field.size != nullptr) flags.Option(flag, sizes[name], help);
    if (field.number != nullptr) flags.Option(flag, numbers[name], help);
    if (field.choose != nullptr)
      flags.Option(flag, choices[name], help + ": " + Join(field.choices, ", "));
  }
}

void ModelFlags::Declare(Flags& flags, const std::string* of_cluster) {
  cluster = of_cluster;
  DeclareModel(flags);
  flags.Section("Batch and numerics");
  flags.Option("--training.local_batch_size", local_batch_size,
               "sequences on each data-parallel rank");
  flags.Option("--training.seq_len", seq_len, "tokens in a sequence");
  flags.Option("--precision", precision,
               "type the step computes in: bf16, f32 or f64; parameters are f32, or f64 with f64");
  flags.Option(
      "--attention", attention,
      "attention kernel: flash or cudnn (fused), math (separate ops), or fastest (the "
      "first of cudnn, flash and math that supports device, precision and head size; cudnn is "
      "not deterministic)");
  flags.Option(kDeviceFlag, device,
               fmt::format("device whose kernels the step uses: cpu or cuda (default: {})",
                           cluster != nullptr ? "the device type of --cluster" : "cpu"));
  flags.AcceptOld("--device", kDeviceFlag);
  flags.Option("--training.loss_divisor", loss_divisor,
               "divisor of the summed loss: valid_tokens (labels other than -100, counted over all "
               "ranks in the step), or all_tokens (a constant)");
  flags.Option("--training.z_loss", z_loss,
               "weight of the squared log normaliser of each token in the loss");
  flags.Option(
      "--training.aux_loss", aux_loss,
      "weight of the load-balancing loss of experts, per sequence and layer (1: balanced)");
}

Status ModelFlags::CheckNoWeights() const {
  if (load_path.empty() || model == "hf") return Done{};
  return Error(Diag::kUsage,
               "--checkpoint.initial_load_path has no effect: this command loads no weights; add "
               "--model=hf to take the model from its config.json");
}

Result<ParamSource> ModelFlags::Params(Model& made, uint64_t seed) const {
  if (!load_path.empty()) return LoadParams(made, load_path);
  return InitialParams(made, seed);
}

std::vector<JobLine> ModelFlags::JobLines() const {
  std::vector<JobLine> out;
  auto add = [&](std::string key, JobValueKind kind, std::string value) {
    out.push_back({std::move(key), JobValue{kind, {std::move(value)}}, ""});
  };
  auto number = [&](std::string key, double value) {
    std::string text;
    AppendFloat(text, value);
    add(std::move(key), JobValueKind::kNumber, std::move(text));
  };
  add("flavor", JobValueKind::kText, flavor);
  add("precision", JobValueKind::kText, precision);
  add("attention", JobValueKind::kText, attention);
  if (!device.empty()) add(std::string(kDeviceFlag.substr(2)), JobValueKind::kText, device);
  add("model.name", JobValueKind::kText, model);
  for (const auto& [name, value] : sizes) {
    if (value) add("model." + name, JobValueKind::kInt, std::to_string(*value));
  }
  for (const auto& [name, value] : numbers) {
    if (value) number("model." + name, *value);
  }
  for (const auto& [name, value] : choices) {
    if (!value.empty()) add("model." + name, JobValueKind::kText, value);
  }
  if (!load_path.empty()) add("checkpoint.initial_load_path", JobValueKind::kText, load_path);
  add("training.loss_divisor", JobValueKind::kText, loss_divisor);
  number("training.z_loss", z_loss);
  number("training.aux_loss", aux_loss);
  return out;
}

Result<ModelConfig> ModelFlags::Config() const {
  if (model == "hf" && load_path.empty())
    return Error(Diag::kUsage,
                 "--model=hf needs --checkpoint.initial_load_path, the folder with config.json");
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
      return Error(Diag::kUsage, "--model.{} has no effect: --model.rope_scaling.kind is none",
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

Result<c10::Device> ModelFlags::Open(int64_t local_rank, const Streams& streams) const {
  HEDDLE_TRY(Target target, ChooseTarget());
  c10::DeviceType type = target == Target::kCuda ? c10::kCUDA : c10::kCPU;
  if (deterministic) MakeExact(type);
  if (local_rank == 0) streams.err << DeviceNote(at::hasCUDA());
  return OpenDevice(type, local_rank);
}

Result<Model> ModelFlags::Make(int64_t batch_ranks, bool sequence_parallel,
                               std::optional<LossDivisor> divisor) const {
  HEDDLE_TRY(ModelConfig config, Config());
  return MakeWith(config, batch_ranks, sequence_parallel, divisor);
}

Result<Model> ModelFlags::MakeWith(const ModelConfig& config, int64_t batch_ranks,
                                   bool sequence_parallel,
                                   std::optional<LossDivisor> divisor) const {
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
  if (deterministic && numerics.attention == AttentionKind::kCudnn)
    return Error(Diag::kBadChoice,
                 "--attention=cudnn gives other gradients in every run; use --attention=flash, or "
                 "--debug.deterministic=false with `heddle train`");
  numerics.deterministic = deterministic;
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
