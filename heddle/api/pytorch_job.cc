#include "heddle/api/pytorch_job.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"
#include "heddle/core/ir/program.h"
#include "heddle/run/models/family.h"
#include "heddle/run/train/safetensors.h"

namespace heddle {
namespace {

// `what` is the flag or the model, with its value.
Failure Refused(std::string_view what, std::string_view instead = "") {
  return Error(Diag::kBadChoice, "--against=pytorch does not support {}{}{}", what,
               instead.empty() ? "" : "; ", instead);
}

Status CheckNumerics(const PyTorchJob& job) {
  const ParallelOptions& parallel = job.parallel;
  if (parallel.gradients != "sum") return Refused("--parallelism.gradients=" + parallel.gradients);
  if (parallel.wide_tensor_gradients) return Refused("--parallelism.tensor_gradients=wide");
  if (int64_t rank = job.step.model.config.lora.rank; rank > 0)
    return Refused(fmt::format("--lora.rank={}", rank));
  if (job.reduce_first) return Refused("--parallelism.reduce_before_scatter");
  if (job.train.reducer != "gloo")
    return Refused("--runtime.reducer=" + job.train.reducer,
                   "PyTorch reduces as Gloo does: use gloo");
  return Done{};
}

Status CheckTensor(const PyTorchJob& job, const PyTorchLayout& layout) {
  const run::ModelConfig& config = job.step.model.config;
  const run::Family& family = *config.family;
  if (family.attention == nullptr || !family.heads_apart || config.mla.kv_rank > 0 ||
      config.moe.experts > 0 || family.norm != run::NormKind::kRms)
    return Refused(fmt::format("tensor parallelism (degree {}) of {} {}", layout.tensor,
                               family.name, config.flavor),
                   "it supports dense models with RMS norms whose attention divides by heads");
  if (layout.split_loss && job.model.z_loss > 0)
    return Refused(fmt::format("--training.z_loss={} with a loss split over {} ranks",
                               job.model.z_loss, layout.tensor),
                   "--parallelism.disable_loss_parallel gathers the logits");
  return Done{};
}

Status CheckExpertRanks(const PyTorchJob& job, const PyTorchLayout& layout) {
  if (layout.replicate > 1 || layout.tensor > 1)
    return Refused(fmt::format("expert parallelism (degree {}) together with {}", layout.expert,
                               layout.tensor > 1 ? "tensor parallelism" : "replicas"));
  for (const run::ParamSpec& param : job.step.model.params) {
    if (param.shape.size() < 3 && param.shape[0] % layout.shard != 0)
      return Refused(
          fmt::format("expert parallelism with `{}`, whose {} rows are not a multiple of "
                      "{} ranks",
                      param.name, param.shape[0], layout.shard));
  }
  return Done{};
}

Status AddContext(const PyTorchJob& job, const ParallelOptions::Layout& layout,
                  PyTorchLayout& found) {
  if (found.tensor > 1 || found.expert > 1)
    return Refused(fmt::format("context parallelism (degree {}) together with {} parallelism",
                               found.context, found.tensor > 1 ? "tensor" : "expert"));
  found.shard *= found.context;
  found.head_tail = std::ranges::any_of(
      layout.mesh.axes(), [](const MeshAxis& axis) { return axis.role == AxisRole::kHeadTail; });
  // FSDP2 shards over all ranks in one step, as the mesh does if rows divide evenly.
  for (const run::ParamSpec& param : job.step.model.params) {
    if (param.shape[0] % found.shard != 0)
      return Refused(
          fmt::format("context parallelism with `{}`, whose {} rows are not a multiple "
                      "of {} ranks",
                      param.name, param.shape[0], found.shard));
  }
  return Done{};
}

// FSDP2 splits stacks of experts within experts only if their rows divide evenly.
Status CheckStacks(const PyTorchJob& job, const PyTorchLayout& layout) {
  int64_t ranks = layout.shard / layout.expert;
  for (const run::ParamSpec& param : job.step.model.params) {
    if (param.shape.size() != 3 || ranks <= param.shape[0] / layout.expert) continue;
    if (param.shape[1] % ranks != 0)
      return Refused(
          fmt::format("`{}` on {} ranks, among which its dimension 1 of {} does not "
                      "divide",
                      param.name, ranks, param.shape[1]));
  }
  return Done{};
}

// Returns the degrees that give the mesh of a plan, by the roles of its axes.
std::optional<ParallelOptions> DegreesOf(const Mesh& mesh) {
  ParallelOptions options;
  for (const MeshAxis& axis : mesh.axes()) {
    AxisRole role = axis.role;
    if (role == AxisRole::kNone) return std::nullopt;
    if (role == AxisRole::kExpert) options.expert = axis.size;
    // Ranks that share experts are part of the shard degree.
    AxisRole counted = role == AxisRole::kExpert ? AxisRole::kShard : role;
    for (size_t i = 0; i < compile::Presets().size(); ++i) {
      if (compile::Presets()[i]->role == counted) options.degrees[i] *= axis.size;
    }
  }
  return options;
}

// Returns the layout by degrees that gives the same plan, if there is one.
Result<std::optional<ParallelOptions::Layout>> LayoutOfPlan(const PyTorchJob& job) {
  const PlannedStep& step = job.step;
  const run::ModelConfig& config = step.model.config;
  std::optional<ParallelOptions> flags = DegreesOf(step.plan.mesh);
  if (!flags) return std::optional<ParallelOptions::Layout>();
  std::vector<int64_t> experts = {flags->expert};
  if (config.moe.experts > 0 && flags->expert == 1) experts.push_back(flags->degrees[1]);
  for (int64_t expert : experts) {
    for (bool sequence_parallel : {true, false}) {
      for (bool split_loss : {true, false}) {
        flags->expert = expert;
        flags->sequence_parallel = sequence_parallel;
        flags->gather_logits = !split_loss;
        Result<ParallelOptions::Layout> layout = flags->MakeLayout(config);
        if (!layout.ok() || !(layout->mesh == step.plan.mesh)) continue;
        HEDDLE_TRY(compile::Plan plan, compile::MakePlan(SharedProgram(step.module), layout->mesh,
                                                         config.family->rules(), layout->preset));
        plan.narrow_grads = step.plan.narrow_grads;
        plan.decisions = step.plan.decisions;
        if (compile::FormatPlan(plan) == compile::FormatPlan(step.plan))
          return std::optional(*std::move(layout));
      }
    }
  }
  return std::optional<ParallelOptions::Layout>();
}

nlohmann::ordered_json ModelJson(const run::ModelConfig& config) {
  run::ModelConfig copy = config;
  nlohmann::ordered_json json = {{"family", config.family->name}};
  for (const run::ConfigField& field : run::ConfigFields()) {
    std::string name(field.name);
    if (field.size != nullptr) json[name] = field.size(copy);
    if (field.number != nullptr) json[name] = field.number(copy);
    if (field.choose != nullptr) json[name] = field.choices[field.chosen(config)];
    if (field.text != nullptr) json[name] = field.text(copy);
  }
  return json;
}

Status WriteWeights(const run::Model& model, const run::ParamSource& params,
                    const std::string& path) {
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (size_t i = 0; i < model.params.size(); ++i) {
    HEDDLE_TRY(at::Tensor whole, params(i));
    tensors.emplace_back(model.params[i].name, whole);
  }
  for (const run::StepInput& input : model.inputs) {
    if (run::IsState(input)) tensors.emplace_back(input.name, run::MakeBuffer(model, input));
  }
  HEDDLE_TRY(std::string bytes, run::FormatSafetensors(tensors));
  return WriteFile(path, bytes);
}

Status WriteData(const PyTorchJob& job, const run::Dataset& dataset, const std::string& path) {
  const run::BatchConfig& batch = job.step.model.batch;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  auto add = [&](std::string_view name, run::DataSplit split, int64_t steps) -> Status {
    run::BatchSource batches = BatchesOf(dataset, split, batch.seq_len);
    for (int64_t step = 1; step <= steps; ++step) {
      HEDDLE_TRY(run::Batch rows, batches(step, 0, batch.batch * job.accumulated));
      tensors.emplace_back(fmt::format("{}.{}.tokens", name, step), rows.tokens);
      tensors.emplace_back(fmt::format("{}.{}.labels", name, step), rows.labels);
      tensors.emplace_back(fmt::format("{}.{}.ends", name, step), rows.ends);
    }
    return Done{};
  };
  HEDDLE_RETURN_IF_ERROR(add("train", run::DataSplit::kTrain, job.train.steps));
  if (job.job.validation_interval > 0)
    HEDDLE_RETURN_IF_ERROR(add("held_out", run::DataSplit::kHeldOut, job.job.validation_steps));
  HEDDLE_TRY(std::string bytes, run::FormatSafetensors(tensors));
  return WriteFile(path, bytes);
}

}  // namespace

Result<PyTorchLayout> LayoutForPyTorch(const PyTorchJob& job) {
  HEDDLE_RETURN_IF_ERROR(CheckNumerics(job));
  ParallelOptions::Layout layout = job.step.layout;
  if (!job.parallel.plan_file.empty()) {
    HEDDLE_TRY(std::optional<ParallelOptions::Layout> named, LayoutOfPlan(job));
    if (!named)
      return Refused(fmt::format("the plan {}", job.parallel.plan_file),
                     "its placements differ from those of FSDP, HSDP, tensor or expert parallelism "
                     "as --parallelism flags write them");
    layout = *std::move(named);
  } else if (job.parallel.expert_tensor > 1 && layout.expert > 1) {
    return Refused(
        fmt::format("--parallelism.expert_tensor_parallel_degree={}", job.parallel.expert_tensor));
  }
  PyTorchLayout found{layout.degree("replicate"),      layout.degree("shard"),
                      layout.degree("tensor"),         layout.expert,
                      layout.preset.sequence_parallel, layout.preset.split_loss,
                      layout.degree("context"),        layout.preset.context_heads,
                      layout.preset.context_ring};
  if (found.context > 1) HEDDLE_RETURN_IF_ERROR(AddContext(job, layout, found));
  if (job.step.model.numerics.target == run::Target::kCuda &&
      (found.world() > 1 || job.step.model.config.moe.experts > 0))
    return Refused(fmt::format("--runtime.device=cuda on {} ranks of {}", found.world(),
                               job.step.model.config.family->name),
                   "on GPUs it supports one rank of a model without experts");
  if (found.world() > 1 && job.train.optimizer.name == run::OptimizerName::kMuon)
    return Refused(fmt::format("--optimizer.name=Muon on {} ranks", found.world()),
                   "torch.optim.Muon updates whole matrices: use one rank, or --against=eager");
  if (found.tensor > 1) HEDDLE_RETURN_IF_ERROR(CheckTensor(job, found));
  if (found.expert > 1) HEDDLE_RETURN_IF_ERROR(CheckExpertRanks(job, found));
  HEDDLE_RETURN_IF_ERROR(CheckStacks(job, found));
  return found;
}

Status WritePyTorchJob(const PyTorchJob& job, const PyTorchLayout& layout,
                       const run::ParamSource& params, const run::Dataset& dataset,
                       const std::string& folder) {
  const run::Model& model = job.step.model;
  const run::OptimizerOptions& optimizer = job.train.optimizer;
  HEDDLE_TRY(auto ns_coefficients, optimizer.NsCoefficients());
  std::string weights = folder + "/weights.safetensors";
  HEDDLE_RETURN_IF_ERROR(WriteWeights(model, params, weights));
  std::string data;
  if (job.job.dataset != "synthetic" || job.job.document_boundaries || model.batch.documents) {
    data = folder + "/data.safetensors";
    HEDDLE_RETURN_IF_ERROR(WriteData(job, dataset, data));
  }
  nlohmann::ordered_json json = {
      {"model", ModelJson(model.config)},
      {"weights", weights},
      {"initial", job.model.load_path.empty()},
      {"data", data},
      {"device", job.step.model.numerics.target == run::Target::kCuda ? "cuda" : "cpu"},
      {"attention", Name(model.numerics.attention)},
      {"precision", Name(job.model.precision)},
      {"reduce", job.step.plan.narrow_grads ? "bf16" : "f32"},
      {"replicate", layout.replicate},
      {"shard", layout.shard},
      {"tensor", layout.tensor},
      {"expert", layout.expert},
      {"world", layout.world()},
      {"sequence_parallel", layout.sequence_parallel},
      {"split_loss", layout.split_loss},
      {"context", layout.context},
      {"context_heads", layout.context_heads},
      {"context_ring", layout.context_ring},
      {"context_latents", GathersLatents(job.step.plan)},
      {"head_tail", layout.head_tail},
      // In a micro-batch, on each data-parallel rank.
      {"rows", model.batch.batch * layout.context / (layout.replicate * layout.shard)},
      {"seq_len", model.batch.seq_len},
      {"documents", model.batch.documents},
      {"steps", job.train.steps},
      {"accumulated", job.accumulated},
      {"seed", job.train.seed},
      {"loss_divisor",
       job.model.loss_divisor == run::LossDivisor::kAllTokens ? "all_tokens" : "valid_tokens"},
      {"z_loss", job.model.z_loss},
      {"aux_loss", job.model.aux_loss},
      {"implementation", optimizer.implementation == run::AdamW::kFused ? "fused" : "for-loop"},
      {"optimizer", Name(optimizer.name)},
      {"momentum", optimizer.Momentum()},
      {"dampening", optimizer.dampening},
      {"nesterov", optimizer.Nesterov()},
      {"ns_coefficients", ns_coefficients},
      {"ns_steps", optimizer.ns_steps},
      {"ns_eps", optimizer.ns_eps},
      {"adjust_lr_fn", optimizer.rate == run::MuonRate::kOriginal ? "original" : "match_rms_adamw"},
      {"lr", job.train.lr},
      {"beta1", optimizer.beta1},
      {"beta2", optimizer.beta2},
      {"eps", optimizer.eps},
      {"weight_decay", optimizer.weight_decay},
      {"decay_vectors", optimizer.decay_vectors},
      {"max_norm", optimizer.max_norm},
      {"warmup_steps", job.job.warmup_steps},
      {"decay", Name(job.job.decay)},
      {"decay_ratio", job.job.decay_ratio},
      {"min_lr_factor", job.job.min_lr_factor},
      {"validation_interval", job.job.validation_interval},
      {"validation_steps", job.job.validation_steps}};
  return WriteFile(folder + "/job.json", json.dump());
}

}  // namespace heddle
