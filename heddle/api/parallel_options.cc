#include "heddle/api/parallel_options.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <charconv>

#include "heddle/core/base/text.h"
#include "heddle/run/models/family.h"

namespace heddle {

namespace {

// The name of the pipeline axis.
constexpr std::string_view kPipelineAxis = "pp";
// Flags about a pipeline besides its degree.
constexpr std::string_view kPipelineFlags[] = {"pipeline_parallel_schedule",
                                               "pipeline_parallel_schedule_csv",
                                               "num_pp_microbatches",
                                               "pipeline_parallel_microbatch_size",
                                               "pipeline_parallel_layers_per_stage",
                                               "pipeline_parallel_first_stage_less_layers",
                                               "pipeline_parallel_last_stage_less_layers",
                                               "pipeline_parallel_gather_every",
                                               "pipeline_parallel_reduce_every"};

}  // namespace

Status CheckHeads(const run::ModelConfig& config, int64_t tensor) {
  auto check = [&](std::string_view what, int64_t heads) -> Status {
    if (heads % tensor == 0) return Done{};
    return Error(
        Diag::kMeshSize,
        "--parallelism.tensor_parallel_degree is {}, which does not divide the number of {}, {}",
        tensor, what, heads);
  };
  bool latent = config.mla.kv_rank > 0;
  if (config.n_heads <= 1 && !latent) return Done{};
  HEDDLE_RETURN_IF_ERROR(check("heads", config.n_heads));
  return latent ? Done{} : check("key and value heads", config.n_kv_heads);
}

namespace {

int64_t KeyHeads(const run::ModelConfig& config) {
  return config.mla.kv_rank > 0 ? config.n_heads : config.n_kv_heads;
}

}  // namespace

bool MayExchangeHeads(const run::ModelConfig& config, int64_t parts) {
  int64_t keys = KeyHeads(config);
  return config.n_heads % parts == 0 && (keys % parts == 0 || parts % keys == 0);
}

int64_t BatchRanks(const Mesh& mesh) {
  bool has_roles = false;
  int64_t ranks = 1;
  for (const MeshAxis& axis : mesh.axes()) {
    has_roles |= axis.role != AxisRole::kNone;
    if (SplitsBatch(axis.role)) ranks *= axis.size;
  }
  return has_roles ? ranks : mesh.ranks();
}

bool ParallelOptions::HasDegrees() const {
  return world != 0 || expert != 1 || pipeline.degree != 1 ||
         std::ranges::any_of(degrees, [](int64_t degree) { return degree != 1; });
}

Status ParallelOptions::CheckPlanIsFile() const {
  if (plan_file != "-") return Done{};
  return Error(Diag::kUsage,
               "--plan is standard input, but training reads its plan from a file; give a path");
}

// Returns the degrees, with -1 replaced by the remaining factor.
Result<std::vector<int64_t>> ParallelOptions::Degrees() const {
  std::vector<int64_t> out = degrees;
  std::optional<size_t> open;
  int64_t ranks = pipeline.degree;
  for (size_t i = 0; i < out.size(); ++i) {
    std::string_view flag = compile::Presets()[i]->degree_flag;
    if (out[i] == -1) {
      if (world == 0) return Error(Diag::kMeshSize, "--parallelism.{}=-1 needs --world_size", flag);
      if (open)
        return Error(Diag::kMeshSize, "--parallelism.{} and --parallelism.{} are both -1",
                     compile::Presets()[*open]->degree_flag, flag);
      open = i;
      continue;
    }
    if (out[i] < 1 || out[i] > Mesh::kMaxRanks)
      return Error(Diag::kMeshSize, "--parallelism.{} is {}, expected 1 to {}", flag, out[i],
                   Mesh::kMaxRanks);
    if (__builtin_mul_overflow(ranks, out[i], &ranks) || ranks > Mesh::kMaxRanks)
      return Error(Diag::kMeshSize, "the degrees {} make more than {} ranks", fmt::join(out, " x "),
                   Mesh::kMaxRanks);
  }
  if (open) ranks *= out[*open] = std::max<int64_t>(world / ranks, 1);
  if (world != 0 && ranks != world)
    return Error(Diag::kMeshSize, "the degrees {}{} make {}, but --world_size is {}",
                 pipeline.degree > 1 ? fmt::format("{} x ", pipeline.degree) : "",
                 fmt::join(out, " x "), Counted(ranks, "rank"), world);
  return out;
}

Result<std::vector<std::string>> ParallelOptions::AxisNames() const {
  std::vector<std::string> names;
  if (axis_names.empty()) {
    for (const compile::Preset* preset : compile::Presets()) names.emplace_back(preset->axis());
    return names;
  }
  for (std::string_view name : Split(axis_names, ',')) {
    names.emplace_back(Trim(name));
    Status usable = CheckAxisName(names.back());
    if (usable.ok()) continue;
    usable.diagnostics()[0].message =
        "--parallelism.axis_names: " + usable.diagnostics()[0].message;
    return std::move(usable).failure();
  }
  if (names.size() != compile::Presets().size())
    return Error(Diag::kMeshSize, "--parallelism.axis_names has {}, expected {}",
                 Counted(static_cast<int64_t>(names.size()), "name"), compile::Presets().size());
  return names;
}

void ParallelOptions::NotePipeline(Layout& layout) const {
  if (pipeline.degree > 1 || !given) return;
  for (std::string_view flag : kPipelineFlags) {
    if (given(fmt::format("--parallelism.{}", flag)))
      layout.notes.push_back(fmt::format(
          "--parallelism.{} has no effect: --parallelism.pipeline_parallel_degree is 1", flag));
  }
}

Result<ParallelOptions::Layout> ParallelOptions::MakeLayout(const run::ModelConfig& config) const {
  HEDDLE_TRY(std::vector<int64_t> degree, Degrees());
  HEDDLE_TRY(std::vector<std::string> names, AxisNames());
  // Ranks would sum parts of an expert's result before its last bias, away from the rows' ranks.
  if (config.family->expert_biases && expert > 1 && expert_tensor > 1)
    return Error(Diag::kBadChoice,
                 "--parallelism.expert_tensor_parallel_degree is {}, but the experts of {} have "
                 "biases and cannot be split; use 1",
                 expert_tensor, config.family->name);
  Layout layout;
  layout.preset.sequence_parallel = sequence_parallel;
  layout.preset.split_loss = !gather_logits;
  std::vector<MeshAxis> axes;
  for (size_t i = 0; i < degree.size(); ++i) {
    const compile::Preset& preset = *compile::Presets()[i];
    if (preset.role == AxisRole::kTensor) HEDDLE_RETURN_IF_ERROR(CheckHeads(config, degree[i]));
    if (preset.splits_batch) layout.batch_ranks *= degree[i];
    // A mesh must have at least one axis, also on one rank.
    bool only = i + 1 == degree.size() && axes.empty() && pipeline.degree == 1;
    if (degree[i] == 1 && !only) continue;
    for (const MeshAxis& axis : axes) {
      if (axis.name == names[i])
        return Error(Diag::kAxisTwice, "axis `{}` is used for two kinds of parallelism", names[i]);
    }
    size_t at = degree[i] == 1 ? 1 : i;
    layout.preset.axes.emplace(compile::Presets()[at]->name, names[at]);
    axes.emplace_back(names[at], degree[i], compile::Presets()[at]->role);
    if (preset.role == AxisRole::kContext && degree[i] > 1)
      HEDDLE_RETURN_IF_ERROR(ChooseContext(config, degree, layout.preset, axes.back()));
  }
  if (pipeline.degree > 1) {
    if (!pipeline.schedule_csv.empty() && given &&
        given("--parallelism.pipeline_parallel_schedule"))
      return Error(Diag::kUsage,
                   "--parallelism.pipeline_parallel_schedule conflicts with "
                   "--parallelism.pipeline_parallel_schedule_csv, which states the schedule; drop "
                   "one");
    for (const MeshAxis& axis : axes) {
      if (axis.name == kPipelineAxis)
        return Error(Diag::kAxisTwice, "axis `{}` is used for two kinds of parallelism", axis.name);
    }
    axes.emplace(axes.begin(), std::string(kPipelineAxis), pipeline.degree, AxisRole::kPipeline);
  }
  layout.mesh = Mesh(std::move(axes));
  layout.degrees = std::move(degree);
  NotePipeline(layout);
  HEDDLE_RETURN_IF_ERROR(ShareExperts(config, layout));
  return layout;
}

Status ParallelOptions::ChooseContext(const run::ModelConfig& config,
                                      std::span<const int64_t> degrees,
                                      compile::PresetOptions& preset, MeshAxis& axis) const {
  int64_t tensor = 1;
  for (size_t i = 0; i < degrees.size(); ++i) {
    if (compile::Presets()[i]->role == AxisRole::kTensor) tensor = degrees[i];
  }
  int64_t parts = tensor * axis.size;
  int64_t keys = KeyHeads(config);
  bool divides = MayExchangeHeads(config, parts);
  if (context_method == ContextMethod::kUlysses && !divides)
    return Error(Diag::kMeshSize,
                 "--parallelism.context_parallel_method is ulysses, but {} heads with {} key and "
                 "value heads cannot be divided evenly among {} ranks; use allgather",
                 config.n_heads, keys, parts);
  // All-to-alls move queries, keys, values and the output once; a gather moves keys and values, or
  // the latents that they come from, to every rank.
  int64_t sent = std::max(keys, parts);
  int64_t exchanged = 2 * (config.n_heads + sent) * config.query_size();
  int64_t gathered = 2 * keys * config.query_size();
  // Every tensor-parallel rank gathers all latents.
  if (config.mla.kv_rank > 0)
    gathered = std::min(gathered, tensor * (config.mla.kv_rank + config.mla.rope_dim));
  bool fewer = exchanged < gathered * axis.size;
  // The order of positions is a matter of gathering.
  bool free = context_method == ContextMethod::kAuto && context_order == ContextOrder::kAuto;
  preset.context_heads = context_method == ContextMethod::kUlysses || (free && divides && fewer);
  preset.context_ring = context_method == ContextMethod::kRing;
  if (!preset.context_heads) {
    if (context_order != ContextOrder::kNone) axis.role = AxisRole::kHeadTail;
    return Done{};
  }
  if (context_order != ContextOrder::kHeadTail) return Done{};
  return Error(Diag::kBadChoice,
               "--parallelism.context_parallel_load_balancer is headtail, but with "
               "--parallelism.context_parallel_method=ulysses all ranks have the same work; use "
               "none");
}

int64_t ParallelOptions::Layout::degree(std::string_view preset) const {
  for (size_t i = 0; i < degrees.size(); ++i) {
    if (compile::Presets()[i]->name == preset) return degrees[i];
  }
  return 1;
}

Status ParallelOptions::CheckExperts(const Layout& layout) const {
  int64_t shard = layout.degree("shard");
  int64_t tensor = layout.degree("tensor");
  if (expert_tensor != 1 && expert_tensor != tensor)
    return Error(Diag::kMeshSize,
                 "--parallelism.expert_tensor_parallel_degree is {}, expected 1 or "
                 "--parallelism.tensor_parallel_degree, {}",
                 expert_tensor, tensor);
  bool borrows = expert_tensor == 1 && tensor > 1;
  int64_t context = layout.degree("context");
  shard *= context;
  int64_t most = shard * (borrows ? tensor : 1);
  if (expert > most)
    return Error(Diag::kMeshSize,
                 "--parallelism.expert_parallel_degree is {}, more than the {} that shard{}",
                 expert, Counted(most, "rank"), borrows ? " or are tensor-parallel" : "");
  if (most % expert != 0)
    return Error(Diag::kMeshSize,
                 "--parallelism.expert_parallel_degree is {}, which does not divide the {} that "
                 "shard{}",
                 expert, Counted(most, "rank"), borrows ? " or are tensor-parallel" : "");
  if (borrows && expert % tensor != 0)
    return Error(Diag::kMeshSize,
                 "--parallelism.expert_parallel_degree is {}, not a multiple of "
                 "--parallelism.tensor_parallel_degree, {}; "
                 "--parallelism.expert_tensor_parallel_degree={} splits each expert instead",
                 expert, tensor, tensor);
  int64_t inside = expert / (borrows ? tensor : 1);
  if (inside > 1 && inside % context != 0)
    return Error(Diag::kMeshSize,
                 "--parallelism.expert_parallel_degree is {}, but experts are shared by all {} "
                 "context-parallel ranks or none; use a multiple of {}",
                 expert, context, context * (borrows ? tensor : 1));
  return Done{};
}

Status ParallelOptions::ShareExperts(const run::ModelConfig& config, Layout& layout) const {
  if (expert == 1) {
    if (expert_tensor != 1 || expert_times != 0)
      layout.notes.push_back(
          fmt::format("--parallelism.{} has no effect: --parallelism.expert_parallel_degree is 1",
                      expert_tensor != 1 ? "expert_tensor_parallel_degree" : "expert_rows_times"));
    return Done{};
  }
  if (config.moe.experts == 0) {
    layout.notes.push_back(
        fmt::format("--parallelism.expert_parallel_degree={} has no effect: {} {} has no experts",
                    expert, config.family->name, config.flavor));
    return Done{};
  }
  HEDDLE_RETURN_IF_ERROR(CheckExperts(layout));
  layout.expert = expert;
  layout.preset.expert_times = expert_times;
  std::vector<MeshAxis> axes(layout.mesh.axes().begin(), layout.mesh.axes().end());
  compile::ChooseExpertAxes(expert, /*with_tensor=*/expert_tensor == 1, axes, layout.preset);
  for (size_t i = 0; i < axes.size(); ++i) {
    auto same = [&](const MeshAxis& axis) { return axis.name == axes[i].name; };
    if (std::any_of(axes.begin(), axes.begin() + static_cast<ptrdiff_t>(i), same))
      return Error(Diag::kAxisTwice, "axis `{}` is used for two kinds of parallelism",
                   axes[i].name);
  }
  layout.mesh = Mesh(std::move(axes));
  return Done{};
}

Status ParallelOptions::SetGradients(DType precision, compile::Plan& plan) const {
  plan.wide_tensor_grads = wide_tensor_gradients;
  if (narrow_gradients && precision != DType::kBF16)
    return Error(Diag::kBadChoice,
                 "--training.mixed_precision_reduce is bf16, but --precision is {}; gradients are "
                 "summed in the type in which they are computed, or in a wider one",
                 Name(precision));
  plan.narrow_grads = narrow_gradients;
  if (gradients == "sum") return Done{};
  if (gradients == "average") {
    plan.average = true;
    return Done{};
  }
  double factor = 0;
  auto [end, error] =
      std::from_chars(gradients.data(), gradients.data() + gradients.size(), factor);
  if (error != std::errc() || end != gradients.data() + gradients.size() ||
      !compile::IsGradDivisor(factor)) {
    return Error(Diag::kBadChoice,
                 "--parallelism.gradients is `{}`, expected sum, average or a positive number",
                 gradients);
  }
  plan.grad_divisor = factor;
  return Done{};
}

Status ParallelOptions::CheckPlan(const run::ModelConfig& config, DType precision,
                                  const compile::Plan& plan) const {
  if (world != 0 && world != plan.mesh.ranks())
    return Error(Diag::kUsage, "--world_size is {}, but the plan is for {} on the mesh [{}]", world,
                 Counted(plan.mesh.ranks(), "rank"), Format(plan.mesh));
  ParallelOptions of_degrees = *this;
  of_degrees.world = 0;
  if (of_degrees.HasDegrees()) {
    of_degrees.world = world;
    HEDDLE_TRY(Layout layout, of_degrees.MakeLayout(config));
    if (layout.mesh != plan.mesh)
      return Error(Diag::kUsage,
                   "the degrees of parallelism make the mesh [{}], but the plan is for [{}]; "
                   "remove the flags, or --plan",
                   Format(layout.mesh), Format(plan.mesh));
  }
  for (std::string_view flag : kPipelineFlags) {
    if (given && given(fmt::format("--parallelism.{}", flag)))
      return Error(Diag::kUsage,
                   "--parallelism.{} conflicts with --plan, which states the stages; remove the "
                   "flag, or change the statement `stages`",
                   flag);
  }
  compile::Plan of_flags;
  HEDDLE_RETURN_IF_ERROR(SetGradients(precision, of_flags));
  auto check = [&](std::string_view flag, std::string_view value, bool agrees,
                   std::string_view statement) -> Status {
    if (agrees || !given || !given(flag)) return Done{};
    return Error(Diag::kUsage, "{}={} contradicts the statement `{}` of the plan; remove the flag",
                 flag, value, statement);
  };
  std::string grads = plan.average               ? std::string("grads average")
                      : plan.grad_divisor != 1.0 ? fmt::format("grads divide {}", plan.grad_divisor)
                                                 : std::string("grads sum");
  HEDDLE_RETURN_IF_ERROR(
      check("--parallelism.gradients", gradients,
            of_flags.average == plan.average && of_flags.grad_divisor == plan.grad_divisor, grads));
  HEDDLE_RETURN_IF_ERROR(
      check("--parallelism.tensor_gradients", wide_tensor_gradients ? "wide" : "narrow",
            of_flags.wide_tensor_grads == plan.wide_tensor_grads,
            plan.wide_tensor_grads ? "tensor-grads wide" : "tensor-grads narrow"));
  return check("--training.mixed_precision_reduce", narrow_gradients ? "bf16" : "f32",
               of_flags.narrow_grads == plan.narrow_grads,
               plan.narrow_grads ? "data-grads narrow" : "data-grads wide");
}

}  // namespace heddle
