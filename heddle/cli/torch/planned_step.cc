#include "heddle/cli/torch/planned_step.h"

#include "heddle/base/clock.h"

namespace heddle {

Result<PlannedStep> PlanStep(const ModelFlags& model, const ParallelFlags& parallel,
                             const CaptureOptions& capture, std::optional<LossDivisor> divisor) {
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
  return PlannedStep{std::move(made), std::move(layout), std::move(module), std::move(plan),
                     captured};
}

}  // namespace heddle
