#include "heddle/api/planned_step.h"

#include <algorithm>

#include "heddle/core/base/clock.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/program.h"
#include "heddle/price/cost/price_options.h"
#include "heddle/price/pipeline/step_costs.h"
#include "heddle/run/models/family.h"
#include "heddle/search/placement/repeat_groups.h"

namespace heddle {
namespace {

Result<compile::Plan> ReadPlan(const ModelOptions& model, const ParallelOptions& parallel) {
  std::string text = parallel.plan_text.value_or("");
  if (!parallel.plan_text) {
    HEDDLE_TRY(text, ReadFile(parallel.plan_file));
  }
  HEDDLE_TRY(compile::Plan plan,
             compile::ParsePlan(text, parallel.plan_file == "-" ? "<stdin>" : parallel.plan_file));
  if (plan.automatic)
    return Error(
        Diag::kUsage,
        "the plan contains `auto`; `heddle parallelize` fills it in, and --parallelism.auto "
        "finds one");
  HEDDLE_TRY(run::ModelConfig config, model.Config());
  HEDDLE_RETURN_IF_ERROR(parallel.CheckPlan(config, model.precision, plan));
  return plan;
}

ParallelOptions::Layout LayoutOf(const compile::Plan& plan) {
  ParallelOptions::Layout layout;
  layout.mesh = plan.mesh;
  layout.batch_ranks = BatchRanks(plan.mesh);
  return layout;
}

// If the plan does not state it, the mesh decides whether norms' gradients are summed separately.
bool HasTensorAxis(const Mesh& mesh) {
  return std::ranges::any_of(mesh.axes(),
                             [](const MeshAxis& axis) { return axis.role == AxisRole::kTensor; });
}

void SetNormsApart(bool apart, compile::Plan& plan) {
  if (apart != HasTensorAxis(plan.mesh)) plan.decisions.norms_apart = apart;
}

// Returns the batch of a step from flags.
Result<compile::PlanBatch> BatchOf(const ModelOptions& model, int64_t batch_ranks,
                                   int64_t global_batch) {
  compile::PlanBatch batch{.seq_len = model.seq_len};
  if (__builtin_mul_overflow(model.local_batch_size, batch_ranks, &batch.sequences))
    return Error(
        Diag::kModelSize,
        "--training.local_batch_size is {} on {}; the size of the whole batch exceeds 64 bits",
        model.local_batch_size, Counted(batch_ranks, "rank"));
  if (global_batch == 0) return batch;
  // A batch without sequences is reported when the model is made.
  if (batch.sequences < 1) return batch;
  if (global_batch % batch.sequences != 0)
    return Error(Diag::kModelSize,
                 "--training.global_batch_size is {}, not a multiple of the {} of all ranks",
                 global_batch, Counted(batch.sequences, "sequence"));
  batch.micro_batches = global_batch / batch.sequences;
  batch.sequences = global_batch;
  return batch;
}

// Checks that flags of the batch agree with the plan's.
Status CheckBatch(const ModelOptions& model, const compile::PlanBatch& stated, int64_t batch_ranks,
                  int64_t global_batch) {
  auto given = [&](std::string_view flag) { return model.given && model.given(flag); };
  auto refuse = [&](std::string_view flag, int64_t value, const std::string& means) -> Status {
    return Error(Diag::kModelSize,
                 "{} is {}{}, but the plan has `batch {}`; remove the flag, or use a plan for "
                 "that batch",
                 flag, value, means, Format(stated));
  };
  if (given("--training.seq_len") && model.seq_len != stated.seq_len)
    return refuse("--training.seq_len", model.seq_len, "");
  int64_t sequences = 0;
  bool overflows = __builtin_mul_overflow(model.local_batch_size, batch_ranks, &sequences);
  if (given("--training.local_batch_size") && (overflows || sequences != stated.pass_sequences()))
    return refuse("--training.local_batch_size", model.local_batch_size,
                  fmt::format(" on each of {}", Counted(batch_ranks, "rank")));
  if (global_batch != 0 && global_batch != stated.sequences)
    return refuse("--training.global_batch_size", global_batch, "");
  return Done{};
}

// How the plan splits sequences by position.
struct ContextUse {
  bool queries = false;
  bool heads = false;
};
ContextUse ContextOf(const compile::Plan& plan) {
  ContextUse use;
  for (const compile::PlanModule& module : plan.modules) {
    if (!module.context.empty()) (module.context_heads ? use.heads : use.queries) = true;
  }
  return use;
}

// Divides the batch into micro-batches of one sequence on each rank, because ranks with parts of
// several sequences cannot merge these dimensions.
Status SplitSequences(const ModelOptions& model, const std::optional<compile::PlanStages>& stages,
                      ParallelOptions::Layout& layout, compile::PlanBatch& batch) {
  const int64_t sequences = model.local_batch_size;
  if (stages) {
    if (sequences == stages->micro_batches) return Done{};
    return Error(Diag::kModelSize,
                 "a micro-batch has {} on each data-parallel rank, but with context parallelism it "
                 "must have one: use --parallelism.num_pp_microbatches={}",
                 Counted(sequences / stages->micro_batches, "sequence"), sequences);
  }
  if (sequences <= 1) return Done{};
  batch.micro_batches *= sequences;
  layout.notes.push_back(fmt::format(
      "context-parallel ranks have one sequence at a time, so --training.local_batch_size={0} "
      "makes {0} micro-batches",
      sequences));
  return Done{};
}

// Checks and divides the batch for context parallelism.
Status ShareContext(const ModelOptions& model, const std::optional<compile::PlanStages>& stages,
                    ParallelOptions::Layout& layout, compile::PlanBatch& batch) {
  int64_t ranks = layout.degree("context");
  if (ranks == 1) return Done{};
  if (model.document_attention && layout.preset.context_ring)
    return Error(
        Diag::kBadChoice,
        "--parallelism.context_parallel_method is ring, which cannot keep attention within "
        "documents; use allgather or ulysses with --training.document_attention");
  HEDDLE_RETURN_IF_ERROR(SplitSequences(model, stages, layout, batch));
  bool head_tail = std::ranges::any_of(
      layout.mesh.axes(), [](const MeshAxis& axis) { return axis.role == AxisRole::kHeadTail; });
  int64_t parts = head_tail ? 2 * ranks : ranks;
  if (model.seq_len % parts == 0) return Done{};
  return Error(Diag::kModelSize, "--training.seq_len is {}, not a multiple of {}, {}; use {}{}",
               model.seq_len, parts,
               head_tail ? "two parts for each context-parallel rank"
                         : "the number of context-parallel ranks",
               std::max(parts, model.seq_len / parts * parts),
               head_tail && model.seq_len % ranks == 0
                   ? ", or --parallelism.context_parallel_load_balancer=none"
                   : "");
}

struct CapturedPass {
  run::Model model;
  Module module;
};

// A pipeline computes its own micro-batches, which it states in the plan.
Result<int64_t> PipelineMicroBatches(const compile::PlanBatch& batch,
                                     const std::optional<compile::PlanStages>& stages) {
  if (!stages) return 1;
  if (batch.pass_sequences() % stages->micro_batches != 0)
    return Error(Diag::kPlan, "{} cannot be divided evenly into {} micro-batches of the pipeline",
                 Counted(batch.pass_sequences(), "sequence"), stages->micro_batches);
  return stages->micro_batches;
}

Result<CapturedPass> CapturePass(const ModelOptions& model, const compile::PlanBatch& batch,
                                 const std::optional<compile::PlanStages>& stages, bool norms_apart,
                                 const ContextUse& context, run::CaptureOptions capture) {
  ModelOptions flags = model;
  flags.splits_queries = context.queries;
  flags.splits_heads = context.heads;
  HEDDLE_TRY(int64_t in_pipeline, PipelineMicroBatches(batch, stages));
  flags.local_batch_size = batch.pass_sequences() / in_pipeline;
  flags.seq_len = batch.seq_len;
  capture.accumulate &= batch.micro_batches > 1;
  bool several = batch.micro_batches * in_pipeline > 1;
  HEDDLE_TRY(run::Model made,
             flags.Make(1, norms_apart,
                        several ? run::LossDivisor::kGiven : std::optional<run::LossDivisor>()));
  HEDDLE_TRY(Module module, run::CaptureModel(made, capture));
  return CapturedPass{std::move(made), std::move(module)};
}

// Divides a captured step into stages of similar length. Prices its nodes as they were captured,
// because partitioning over ranks changes all layers in the same way.
Result<std::vector<int64_t>> BalancedStages(const ModelOptions& model, const Module& captured,
                                            int64_t stages) {
  price::PriceOptions prices;
  if (model.cluster != nullptr) prices.cluster = *model.cluster;
  HEDDLE_TRY(price::CostModel costs, prices.Load());
  Module local{View::kLocal, Mesh(), {SharedProgram(captured)}};
  HEDDLE_TRY(price::StepCosts step, price::FindStepCosts(local, local.graphs[0], costs));
  if (stages > step.most_stages())
    return Error(Diag::kSchedule, "{} for {} with embedding and output; use fewer stages",
                 Counted(stages, "stage"), Counted(step.most_stages() - 2, "layer"));
  return price::BalanceStages(step, stages);
}

}  // namespace

Result<PlannedStep> PlanStep(const ModelOptions& model, const ParallelOptions& parallel,
                             const run::CaptureOptions& capture, int64_t global_batch) {
  if (!parallel.plan_file.empty()) {
    HEDDLE_TRY(compile::Plan plan, ReadPlan(model, parallel));
    return PlanStep(model, plan, capture, global_batch);
  }
  Clock clock;
  HEDDLE_TRY(run::ModelConfig config, model.Config());
  HEDDLE_TRY(ParallelOptions::Layout layout, parallel.MakeLayout(config));
  bool sequence_parallel = layout.preset.sequence_parallel && layout.preset.axes.contains("tensor");
  HEDDLE_TRY(compile::PlanBatch batch, BatchOf(model, layout.batch_ranks, global_batch));
  ContextUse context;
  if (layout.degree("context") > 1)
    (layout.preset.context_heads ? context.heads : context.queries) = true;
  std::optional<compile::PlanStages> stages;
  if (parallel.pipeline.degree > 1) {
    HEDDLE_TRY(stages, parallel.pipeline.Stages(config.n_layers, model.local_batch_size));
  }
  HEDDLE_RETURN_IF_ERROR(ShareContext(model, stages, layout, batch));
  HEDDLE_TRY(CapturedPass pass,
             CapturePass(model, batch, stages, sequence_parallel, context, capture));
  if (stages && parallel.pipeline.balances()) {
    HEDDLE_TRY(
        stages->first_positions,
        BalancedStages(model, pass.module, static_cast<int64_t>(stages->first_positions.size())));
  }
  Nanos captured = clock.Elapsed();
  HEDDLE_TRY(compile::Plan plan, compile::MakePlan(SharedProgram(pass.module), layout.mesh,
                                                   config.family->rules(), layout.preset));
  HEDDLE_RETURN_IF_ERROR(parallel.SetGradients(model.precision, plan));
  plan.decisions.batch = batch;
  plan.decisions.stages = std::move(stages);
  SetNormsApart(sequence_parallel, plan);
  return PlannedStep{std::move(pass.model),
                     std::move(layout),
                     std::move(pass.module),
                     std::move(plan),
                     {},
                     captured};
}

bool GathersLatents(const compile::Plan& plan) {
  return std::ranges::any_of(plan.modules, [](const compile::PlanModule& module) {
    return module.in && module.why == Why::kContext;
  });
}

namespace {

struct PresetDegrees {
  int64_t data = 1;
  int64_t tensor = 1;
  int64_t context = 1;
};

// Whether presets can have these degrees, if context-parallel ranks exchange positions for heads.
// The kernels of all-gather are used on request only, because they are slower.
bool Fits(const PresetDegrees& degrees, const ModelOptions& model, const run::ModelConfig& config,
          const compile::PlanBatch& batch) {
  if (degrees.tensor > 1 && !CheckHeads(config, degrees.tensor).ok()) return false;
  if (degrees.context == 1) return true;
  ModelOptions flags = model;
  flags.splits_heads = true;
  return batch.pass_sequences() == degrees.data && model.seq_len % degrees.context == 0 &&
         MayExchangeHeads(config, degrees.context * degrees.tensor) && flags.Numerics(config).ok();
}

// Returns a plan for each preset whose axes the mesh can have.
Result<std::vector<search::RivalPlan>> PresetsOn(const Mesh& mesh, const Graph& graph,
                                                 const ModelOptions& model,
                                                 const compile::PlanBatch& batch) {
  HEDDLE_TRY(run::ModelConfig config, model.Config());
  std::vector<std::string> axes;
  for (const MeshAxis& axis : mesh.axes()) {
    if (axis.size > 1) axes.push_back(axis.name);
  }
  size_t count = compile::Presets().size();
  std::vector<search::RivalPlan> out;
  for (uint32_t set = 1; set < uint32_t{1} << count; ++set) {
    if (static_cast<size_t>(__builtin_popcount(set)) != axes.size()) continue;
    compile::PresetOptions options;
    std::string name;
    bool fits = true;
    PresetDegrees degrees;
    size_t at = 0;
    for (size_t i = 0; i < count; ++i) {
      if ((set >> i & 1) == 0) continue;
      const std::string& axis = axes[at++];
      int64_t degree = mesh[*mesh.Find(axis)].size;
      options.axes.emplace(compile::Presets()[i]->name, axis);
      name +=
          fmt::format("{}{} over {}", name.empty() ? "" : ", ", compile::Presets()[i]->name, axis);
      AxisRole role = compile::Presets()[i]->role;
      (role == AxisRole::kTensor    ? degrees.tensor
       : role == AxisRole::kContext ? degrees.context
                                    : degrees.data) *= degree;
      fits &= role != AxisRole::kContext || mesh[*mesh.Find(axis)].role == role;
    }
    if (!fits || !Fits(degrees, model, config, batch)) continue;
    options.context_heads = degrees.context > 1;
    HEDDLE_TRY(compile::Plan plan, compile::MakePlan(graph, mesh, config.family->rules(), options));
    out.push_back({std::move(name), search::Compacted(std::move(plan), graph)});
  }
  return out;
}

}  // namespace

Result<PlannedStep> PlanAutoStep(const ModelOptions& model, const ParallelOptions& parallel,
                                 ParallelOptions::Layout layout,
                                 const run::CaptureOptions& capture) {
  Clock clock;
  HEDDLE_TRY(compile::PlanBatch batch, BatchOf(model, layout.batch_ranks, 0));
  HEDDLE_TRY(CapturedPass pass, CapturePass(model, batch, /*stages=*/{}, /*norms_apart=*/false,
                                            /*context=*/{}, capture));
  Nanos captured = clock.Elapsed();
  compile::Plan plan;
  plan.mesh = layout.mesh;
  plan.automatic = true;
  plan.decisions.batch = batch;
  SetNormsApart(false, plan);
  HEDDLE_RETURN_IF_ERROR(parallel.SetGradients(model.precision, plan));
  HEDDLE_TRY(std::vector<search::RivalPlan> rivals,
             PresetsOn(layout.mesh, SharedProgram(pass.module), model, batch));
  for (search::RivalPlan& rival : rivals)
    HEDDLE_RETURN_IF_ERROR(parallel.SetGradients(model.precision, rival.plan));
  return PlannedStep{std::move(pass.model), std::move(layout), std::move(pass.module),
                     std::move(plan),       std::move(rivals), captured};
}

Result<PlannedStep> PlanStep(const ModelOptions& model, const compile::Plan& plan,
                             const run::CaptureOptions& capture, int64_t global_batch) {
  Clock clock;
  ParallelOptions::Layout layout = LayoutOf(plan);
  compile::Plan complete = plan;
  std::optional<compile::PlanBatch>& batch = complete.decisions.batch;
  if (batch) {
    HEDDLE_RETURN_IF_ERROR(CheckBatch(model, *batch, layout.batch_ranks, global_batch));
  } else {
    HEDDLE_TRY(batch, BatchOf(model, layout.batch_ranks, global_batch));
  }
  bool norms_apart = plan.decisions.norms_apart.value_or(HasTensorAxis(plan.mesh));
  HEDDLE_TRY(CapturedPass pass, CapturePass(model, *batch, plan.decisions.stages, norms_apart,
                                            ContextOf(plan), capture));
  return PlannedStep{
      std::move(pass.model), std::move(layout), std::move(pass.module), std::move(complete), {},
      clock.Elapsed()};
}

Result<PlannedStep> PlanPass(const ModelOptions& model, const compile::Plan& plan,
                             const run::CaptureOptions& capture) {
  // The plan states the batch of the flags now.
  ModelOptions flags = model;
  flags.given = nullptr;
  return PlanStep(flags, plan, capture);
}

}  // namespace heddle
