#include "heddle/api/model_options.h"

#include "heddle/core/base/text.h"
#include "heddle/price/cost/cluster/cluster.h"
#include "heddle/run/hf/folder.h"
#include "heddle/run/hf/load.h"
#include "heddle/run/layers/attention.h"
#include "heddle/run/models/decoder.h"
#include "heddle/run/models/family.h"
#include "heddle/run/train/device.h"
#include "heddle/run/train/exact.h"

namespace heddle {

Status ModelOptions::CheckNoWeights() const {
  if (load_path.empty() || model == "hf") return Done{};
  return Error(Diag::kUsage,
               "--checkpoint.initial_load_path has no effect: this command loads no weights; add "
               "--model=hf to take the model from its config.json");
}

Result<run::ParamSource> ModelOptions::Params(run::Model& made, uint64_t seed) const {
  if (load_path.empty()) return run::InitialParams(made, seed);
  if (made.config.lora.rank == 0) return run::LoadParams(made, load_path);
  // The weights are loaded, and the adapters are new.
  auto base = std::make_shared<run::Model>(made);
  std::erase_if(base->params,
                [](const run::ParamSpec& param) { return run::IsAdapter(param.name); });
  HEDDLE_TRY(run::ParamSource loaded, run::LoadParams(*base, load_path));
  std::map<std::string, size_t> places;
  for (size_t i = 0; i < base->params.size(); ++i) places[base->params[i].name] = i;
  return run::ParamSource([base, loaded, places, initial = run::InitialParams(made, seed),
                           &made](size_t param) -> Result<at::Tensor> {
    auto found = places.find(made.params[param].name);
    return found == places.end() ? initial(param) : loaded(found->second);
  });
}

Result<run::ModelConfig> ModelOptions::Config() const {
  if (model == "hf" && load_path.empty())
    return Error(Diag::kUsage,
                 "--model=hf needs --checkpoint.initial_load_path, the folder with config.json");
  HEDDLE_TRY(run::ModelConfig config,
             model == "hf" ? run::ReadHfConfig(load_path) : run::FindModel(model, flavor));
  for (const auto& [name, value] : sizes) {
    if (value) HEDDLE_RETURN_IF_ERROR(run::OverrideSize(config, name, *value));
  }
  for (const auto& [name, value] : numbers) {
    if (value) HEDDLE_RETURN_IF_ERROR(run::OverrideNumber(config, name, *value));
  }
  for (const auto& [name, value] : choices) {
    if (!value.empty()) HEDDLE_RETURN_IF_ERROR(run::OverrideChoice(config, name, value));
  }
  for (const auto& [name, value] : switches) {
    if (value) HEDDLE_RETURN_IF_ERROR(run::OverrideChoice(config, name, *value ? "true" : "false"));
  }
  for (std::string_view name : {"lora.alpha", "lora.targets"}) {
    auto number = numbers.find(std::string(name));
    auto choice = choices.find(std::string(name));
    bool set = (number != numbers.end() && number->second) ||
               (choice != choices.end() && !choice->second.empty());
    if (set && config.lora.rank == 0)
      return Error(Diag::kUsage, "--{} has no effect without --lora.rank", name);
  }
  for (const auto& [name, value] : numbers) {
    if (value && name.starts_with("rope_scaling.") &&
        config.rope.scaling == run::RopeScaling::kNone)
      return Error(Diag::kUsage, "--model.{} has no effect: --model.rope_scaling.kind is none",
                   name);
  }
  return config;
}

Result<run::Target> ModelOptions::ChooseTarget() const {
  if (device) return *device;
  if (cluster == nullptr) return run::Target::kCpu;
  HEDDLE_TRY(price::Cluster loaded, price::LoadCluster(*cluster));
  return loaded.device.type == price::DeviceType::kCuda ? run::Target::kCuda : run::Target::kCpu;
}

Result<std::string> ModelOptions::DeviceName() const {
  HEDDLE_TRY(run::Target target, ChooseTarget());
  return std::string(
      Name(target == run::Target::kCuda ? price::DeviceType::kCuda : price::DeviceType::kCpu));
}

std::string ModelOptions::DeviceNote(bool machine_has_gpu) const {
  if (device || !machine_has_gpu) return "";
  return fmt::format(
      "note: running on the CPU, the default; this machine has a GPU, which {}=cuda uses",
      kDeviceFlag);
}

Result<c10::Device> ModelOptions::Open(int64_t local_rank) const {
  HEDDLE_TRY(run::Target target, ChooseTarget());
  c10::DeviceType type = target == run::Target::kCuda ? c10::kCUDA : c10::kCPU;
  if (deterministic) run::MakeExact(type);
  return run::OpenDevice(type, local_rank);
}

namespace {

// Only the kernels of flash attention can have a part of the queries.
Status CheckSplitsQueries(const run::ModelConfig& config, int64_t seq_len,
                          const run::StepNumerics& numerics) {
  if (config.family->attention == nullptr)
    return Error(Diag::kBadChoice, "{} has no attention, so ranks cannot share its positions",
                 config.family->name);
  if (std::string why = run::WhyMathOnly(config, seq_len); !why.empty())
    return Error(Diag::kBadChoice, "{}, so ranks cannot share the positions of sequences", why);
  run::AttentionKind kind = numerics.attention == run::AttentionKind::kFastest
                                ? run::FastestAttention(config.query_size(), numerics)
                                : numerics.attention;
  bool cudnn = kind == run::AttentionKind::kCudnn && !numerics.splits_queries;
  if (cudnn || kind == run::AttentionKind::kFlash) return Done{};
  if (numerics.attention != run::AttentionKind::kFastest)
    return Error(Diag::kBadChoice,
                 "--attention is {}, which cannot split queries over context-parallel ranks; use "
                 "--attention=flash",
                 Name(numerics.attention));
  return Error(Diag::kBadChoice,
               "context parallelism needs flash attention, which supports bf16 on cuda, but "
               "--precision is {}",
               Name(numerics.compute));
}

Status CheckDocuments(const run::ModelConfig& config, const run::StepNumerics& numerics) {
  if (config.family->attention == nullptr)
    return Error(Diag::kBadChoice,
                 "--training.document_attention has no effect: {} has no attention",
                 config.family->name);
  if (numerics.attention == run::AttentionKind::kFlash) return Done{};
  if (numerics.attention != run::AttentionKind::kFastest)
    return Error(Diag::kBadChoice,
                 "--attention is {}, which attends to all documents of a row; use "
                 "--attention=flash with --training.document_attention",
                 Name(numerics.attention));
  if (run::FastestAttention(config.query_size(), numerics) != run::AttentionKind::kMath)
    return Done{};
  return Error(Diag::kBadChoice,
               "--training.document_attention needs flash attention, which supports bf16 on cuda, "
               "but --precision is {}",
               Name(numerics.compute));
}

}  // namespace

Result<run::Model> ModelOptions::Make(int64_t batch_ranks, bool sequence_parallel,
                                      std::optional<run::LossDivisor> divisor) const {
  HEDDLE_TRY(run::ModelConfig config, Config());
  return MakeWith(config, batch_ranks, sequence_parallel, divisor);
}

Result<run::Model> ModelOptions::MakeWith(const run::ModelConfig& config, int64_t batch_ranks,
                                          bool sequence_parallel,
                                          std::optional<run::LossDivisor> divisor) const {
  HEDDLE_TRY(run::StepNumerics numerics, Numerics(config));
  numerics.norms_apart = sequence_parallel;
  if (document_attention) {
    HEDDLE_RETURN_IF_ERROR(CheckDocuments(config, numerics));
    numerics.attention = run::AttentionKind::kFlash;
  }
  if (divisor) numerics.loss_divisor = *divisor;
  int64_t batch = 0;
  if (__builtin_mul_overflow(local_batch_size, batch_ranks, &batch))
    return Error(
        Diag::kModelSize,
        "--training.local_batch_size is {} on {}; the size of the whole batch exceeds 64 bits",
        local_batch_size, Counted(batch_ranks, "rank"));
  run::BatchConfig sequences{batch, seq_len, document_attention};
  return run::MakeModel(config, sequences, numerics);
}

Result<run::StepNumerics> ModelOptions::Numerics(const run::ModelConfig& config) const {
  run::StepNumerics numerics;
  numerics.compute = precision;
  numerics.attention = attention;
  HEDDLE_TRY(numerics.target, ChooseTarget());
  bool cuda = numerics.target == run::Target::kCuda;
  bool fused = numerics.attention == run::AttentionKind::kCudnn ||
               (cuda && numerics.attention == run::AttentionKind::kFlash);
  if (fused && !(cuda && numerics.compute == DType::kBF16))
    return Error(Diag::kBadChoice,
                 "--attention is {}, which supports bf16 on cuda, but not {} on {}",
                 Name(attention), Name(precision), cuda ? "cuda" : "cpu");
  if (deterministic && numerics.attention == run::AttentionKind::kCudnn)
    return Error(
        Diag::kBadChoice,
        "--attention=cudnn does not repeat the bits of gradients; use --attention=flash, or "
        "--debug.deterministic=false with `heddle train`");
  numerics.deterministic = deterministic;
  numerics.splits_queries = splits_queries;
  if (splits_queries || splits_heads)
    HEDDLE_RETURN_IF_ERROR(CheckSplitsQueries(config, seq_len, numerics));
  numerics.loss_divisor = loss_divisor;
  numerics.z_loss = z_loss;
  numerics.aux_loss = aux_loss;
  return numerics;
}

}  // namespace heddle
