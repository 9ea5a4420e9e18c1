#include "heddle/cli/torch/plan/planned_step.h"

#include <algorithm>

#include "heddle/base/clock.h"
#include "heddle/base/file.h"

namespace heddle {
namespace {

Result<Plan> ReadPlan(const ParallelFlags& parallel) {
  if (parallel.HasDegrees())
    return Error(Diag::kUsage,
                 "--plan says how the step is spread, and so does a degree of parallelism");
  HEDDLE_TRY(std::string text, ReadFile(parallel.plan_file));
  HEDDLE_TRY(Plan plan, ParsePlan(text, parallel.plan_file));
  if (plan.automatic)
    return Error(Diag::kUsage,
                 "the plan says `auto`; `heddle parallelize` fills it in, and --parallelism.auto "
                 "finds one");
  return plan;
}

ParallelFlags::Layout LayoutOf(const Plan& plan) {
  ParallelFlags::Layout layout;
  layout.mesh = plan.mesh;
  layout.batch_ranks = BatchRanks(plan.mesh);
  return layout;
}

}  // namespace

Result<ParallelFlags::Layout> LayoutFor(const ModelFlags& model, const ParallelFlags& parallel) {
  if (!parallel.plan_file.empty()) {
    HEDDLE_TRY(Plan plan, ReadPlan(parallel));
    return LayoutOf(plan);
  }
  HEDDLE_TRY(ModelConfig config, model.Config());
  return parallel.MakeLayout(config);
}

Result<PlannedStep> PlanStep(const ModelFlags& model, const ParallelFlags& parallel,
                             const CaptureOptions& capture, std::optional<LossDivisor> divisor) {
  if (!parallel.plan_file.empty()) {
    HEDDLE_TRY(Plan plan, ReadPlan(parallel));
    return PlanStep(model, plan, capture, divisor);
  }
  Clock clock;
  HEDDLE_TRY(ModelConfig config, model.Config());
  HEDDLE_TRY(ParallelFlags::Layout layout, parallel.MakeLayout(config));
  bool sequence_parallel = layout.preset.sequence_parallel && layout.preset.axes.contains("tensor");
  HEDDLE_TRY(Model made, model.Make(layout.batch_ranks, sequence_parallel, divisor));
  HEDDLE_TRY(Module module, CaptureModel(made, capture));
  Nanos captured = clock.Elapsed();
  HEDDLE_TRY(Plan plan,
             MakePlan(module.graphs[0], layout.mesh, config.family->rules(), layout.preset));
  HEDDLE_RETURN_IF_ERROR(parallel.SetGradients(model.precision, plan));
  return PlannedStep{std::move(made), std::move(layout), std::move(module), std::move(plan), {},
                     captured};
}

Result<PlannedStep> PlanStep(const ModelFlags& model, const ParallelFlags& parallel,
                             const AutoFlags& automatic, const CaptureOptions& capture) {
  HEDDLE_RETURN_IF_ERROR(automatic.Check(parallel));
  if (!automatic.automatic) return PlanStep(model, parallel, capture);
  Clock clock;
  HEDDLE_TRY(ModelConfig config, model.Config());
  HEDDLE_TRY(ParallelFlags::Layout layout, automatic.MakeLayout(parallel, config));
  HEDDLE_TRY(Model made, model.Make(layout.batch_ranks));
  HEDDLE_TRY(Module module, CaptureModel(made, capture));
  Nanos captured = clock.Elapsed();
  Plan plan;
  plan.mesh = layout.mesh;
  plan.automatic = true;
  HEDDLE_RETURN_IF_ERROR(parallel.SetGradients(model.precision, plan));
  HEDDLE_TRY(std::vector<RivalPlan> rivals, PresetsOn(layout.mesh, module.graphs[0], config));
  for (RivalPlan& rival : rivals)
    HEDDLE_RETURN_IF_ERROR(parallel.SetGradients(model.precision, rival.plan));
  return PlannedStep{std::move(made), std::move(layout), std::move(module),
                     std::move(plan), std::move(rivals), captured};
}

Result<PlannedStep> PlanStep(const ModelFlags& model, const Plan& plan,
                             const CaptureOptions& capture, std::optional<LossDivisor> divisor) {
  Clock clock;
  ParallelFlags::Layout layout = LayoutOf(plan);
  bool has_tensor = std::ranges::any_of(Presets(), [&](const Preset* preset) {
    return preset->name == "tensor" && plan.mesh.Find(preset->axis);
  });
  HEDDLE_TRY(Model made, model.Make(layout.batch_ranks, has_tensor, divisor));
  HEDDLE_TRY(Module module, CaptureModel(made, capture));
  return PlannedStep{std::move(made), std::move(layout), std::move(module), plan, {},
                     clock.Elapsed()};
}

}  // namespace heddle
