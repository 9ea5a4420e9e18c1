#include "heddle/cli/torch/model_flags.h"

#include "heddle/core/base/text.h"

namespace heddle {

void ModelFlags::DeclareModel(Flags& flags) {
  given = [set = flags.given()](std::string_view flag) { return set->Has(flag); };
  flags.Section("Model");
  flags.Option("--model", model,
               "model family (`heddle models` lists them), or hf: the model that config.json at "
               "--checkpoint.initial_load_path describes");
  flags.Option("--flavor", flavor, "size of the model");
  flags.Option("--checkpoint.initial_load_path=PATH", load_path,
               "initial weights: a .safetensors file of Heddle's, or a Hugging Face folder");
  flags.Path("--checkpoint.initial_load_path");
  flags.Section("Model sizes");
  for (const run::ConfigField& field : run::ConfigFields()) {
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

void OptimizerFlags::Declare(Flags& flags) {
  flags.Switch("--without-optimizer", without,
               "leave the optimizer out of the step; by default the step clips by global norm "
               "(1.0) and updates with AdamW");
  flags.Switch("--with-optimizer", with, "include the optimizer, which is the default");
}

Result<std::optional<run::OptimizerOptions>> OptimizerFlags::Choose() const {
  if (with && without)
    return Error(Diag::kUsage,
                 "--with-optimizer conflicts with --without-optimizer; remove one of them");
  return without ? std::nullopt : std::optional(run::OptimizerOptions());
}

}  // namespace heddle
