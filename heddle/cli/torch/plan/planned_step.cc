#include "heddle/cli/torch/plan/planned_step.h"

#include <algorithm>

#include "heddle/base/clock.h"
#include "heddle/base/text.h"

namespace heddle {
namespace {

Result<Plan> ReadPlan(const ModelFlags& model, const ParallelFlags& parallel,
                      const Streams& streams) {
  HEDDLE_TRY(std::string text, ReadInput(parallel.plan_file, streams));
  HEDDLE_TRY(Plan plan, ParsePlan(text, InputName(parallel.plan_file)));
  if (plan.automatic)
    return Error(Diag::kUsage,
                 "the plan says `auto`; `heddle parallelize` fills it in, and --parallelism.auto "
                 "finds one");
  HEDDLE_TRY(ModelConfig config, model.Config());
  HEDDLE_RETURN_IF_ERROR(parallel.CheckPlan(config, model.precision, plan));
  return plan;
}

ParallelFlags::Layout LayoutOf(const Plan& plan) {
  ParallelFlags::Layout layout;
  layout.mesh = plan.mesh;
  layout.batch_ranks = BatchRanks(plan.mesh);
  return layout;
}

// Where a plan does not state it, its mesh decides whether norms work apart.
bool HasTensorAxis(const Mesh& mesh) {
  return std::ranges::any_of(Presets(), [&](const Preset* preset) {
    return preset->name == "tensor" && mesh.Find(preset->axis);
  });
}

void SetNormsApart(bool apart, Plan& plan) {
  if (apart != HasTensorAxis(plan.mesh)) plan.decisions.norms_apart = apart;
}

// The batch of a step, by flags.
Result<PlanBatch> BatchOf(const ModelFlags& model, int64_t batch_ranks, int64_t global_batch) {
  PlanBatch batch{.seq_len = model.seq_len};
  if (__builtin_mul_overflow(model.local_batch_size, batch_ranks, &batch.sequences))
    return Error(
        Diag::kModelSize,
        "--training.local_batch_size is {}, on {}; the whole batch does not fit into 64 bits",
        model.local_batch_size, Counted(batch_ranks, "rank"));
  if (global_batch == 0) return batch;
  // A batch that no model takes is reported when the model is made.
  if (batch.sequences < 1) return batch;
  if (global_batch % batch.sequences != 0)
    return Error(Diag::kModelSize,
                 "--training.global_batch_size is {}, no multiple of the {} of all ranks",
                 global_batch, Counted(batch.sequences, "sequence"));
  batch.micro_batches = global_batch / batch.sequences;
  batch.sequences = global_batch;
  return batch;
}

// That flags of the batch agree with the plan's.
Status CheckBatch(const ModelFlags& model, const PlanBatch& stated, int64_t batch_ranks,
                  int64_t global_batch) {
  auto given = [&](std::string_view flag) { return model.given && model.given->Has(flag); };
  auto refuse = [&](std::string_view flag, int64_t value, const std::string& means) -> Status {
    return Error(Diag::kModelSize,
                 "{} is {}{}, and the plan has `batch {}`; remove the flag, or use a plan for "
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

struct CapturedPass {
  Model model;
  Module module;
};

Result<CapturedPass> CapturePass(const ModelFlags& model, const PlanBatch& batch, bool norms_apart,
                                 CaptureOptions capture) {
  ModelFlags flags = model;
  flags.local_batch_size = batch.pass_sequences();
  flags.seq_len = batch.seq_len;
  bool several = batch.micro_batches > 1;
  capture.accumulate &= several;
  HEDDLE_TRY(Model made, flags.Make(1, norms_apart,
                                    several ? LossDivisor::kGiven : std::optional<LossDivisor>()));
  HEDDLE_TRY(Module module, CaptureModel(made, capture));
  return CapturedPass{std::move(made), std::move(module)};
}

}  // namespace

Result<PlannedStep> PlanStep(const ModelFlags& model, const ParallelFlags& parallel,
                             const Streams& streams, const CaptureOptions& capture,
                             int64_t global_batch) {
  if (!parallel.plan_file.empty()) {
    HEDDLE_TRY(Plan plan, ReadPlan(model, parallel, streams));
    return PlanStep(model, plan, capture, global_batch);
  }
  Clock clock;
  HEDDLE_TRY(ModelConfig config, model.Config());
  HEDDLE_TRY(ParallelFlags::Layout layout, parallel.MakeLayout(config));
  bool sequence_parallel = layout.preset.sequence_parallel && layout.preset.axes.contains("tensor");
  HEDDLE_TRY(PlanBatch batch, BatchOf(model, layout.batch_ranks, global_batch));
  HEDDLE_TRY(CapturedPass pass, CapturePass(model, batch, sequence_parallel, capture));
  Nanos captured = clock.Elapsed();
  HEDDLE_TRY(Plan plan,
             MakePlan(pass.module.graphs[0], layout.mesh, config.family->rules(), layout.preset));
  HEDDLE_RETURN_IF_ERROR(parallel.SetGradients(model.precision, plan));
  plan.decisions.batch = batch;
  SetNormsApart(sequence_parallel, plan);
  return PlannedStep{std::move(pass.model),
                     std::move(layout),
                     std::move(pass.module),
                     std::move(plan),
                     {},
                     captured};
}

Result<PlannedStep> PlanStep(const ModelFlags& model, const ParallelFlags& parallel,
                             const AutoFlags& automatic, const Streams& streams,
                             const CaptureOptions& capture) {
  HEDDLE_RETURN_IF_ERROR(automatic.Check(parallel));
  if (!automatic.automatic) return PlanStep(model, parallel, streams, capture);
  Clock clock;
  HEDDLE_TRY(ModelConfig config, model.Config());
  HEDDLE_TRY(ParallelFlags::Layout layout, automatic.MakeLayout(parallel, config));
  HEDDLE_TRY(PlanBatch batch, BatchOf(model, layout.batch_ranks, 0));
  HEDDLE_TRY(CapturedPass pass, CapturePass(model, batch, /*norms_apart=*/false, capture));
  Nanos captured = clock.Elapsed();
  Plan plan;
  plan.mesh = layout.mesh;
  plan.automatic = true;
  plan.decisions.batch = batch;
  SetNormsApart(false, plan);
  HEDDLE_RETURN_IF_ERROR(parallel.SetGradients(model.precision, plan));
  HEDDLE_TRY(std::vector<RivalPlan> rivals, PresetsOn(layout.mesh, pass.module.graphs[0], config));
  for (RivalPlan& rival : rivals)
    HEDDLE_RETURN_IF_ERROR(parallel.SetGradients(model.precision, rival.plan));
  return PlannedStep{std::move(pass.model), std::move(layout), std::move(pass.module),
                     std::move(plan),       std::move(rivals), captured};
}

Result<PlannedStep> PlanStep(const ModelFlags& model, const Plan& plan,
                             const CaptureOptions& capture, int64_t global_batch) {
  Clock clock;
  ParallelFlags::Layout layout = LayoutOf(plan);
  Plan complete = plan;
  std::optional<PlanBatch>& batch = complete.decisions.batch;
  if (batch) {
    HEDDLE_RETURN_IF_ERROR(CheckBatch(model, *batch, layout.batch_ranks, global_batch));
  } else {
    HEDDLE_TRY(batch, BatchOf(model, layout.batch_ranks, global_batch));
  }
  bool norms_apart = plan.decisions.norms_apart.value_or(HasTensorAxis(plan.mesh));
  HEDDLE_TRY(CapturedPass pass, CapturePass(model, *batch, norms_apart, capture));
  return PlannedStep{
      std::move(pass.model), std::move(layout), std::move(pass.module), std::move(complete), {},
      clock.Elapsed()};
}

Result<PlannedStep> PlanPass(const ModelFlags& model, const Plan& plan,
                             const CaptureOptions& capture) {
  // The plan states the batch that the flags ask for.
  ModelFlags flags = model;
  flags.given = nullptr;
  return PlanStep(flags, plan, capture);
}

}  // namespace heddle
