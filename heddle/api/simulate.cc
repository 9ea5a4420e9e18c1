#include "heddle/api/simulate.h"

#include "heddle/core/ir/program.h"

namespace heddle {
namespace {

// Returns a title such as `llama3 8B`.
std::string TrainedModel(const PlannedStep& step) {
  return fmt::format("{} {}", step.model.config.family->name, step.model.config.flavor);
}

// Simulates the step with another pipeline. The pipeline is used as written: settings and
// statements that change pipelines apply to the planned step only.
Result<search::SimulatedModule> SimulateOther(const SimulationOptions& options,
                                              const PlannedStep& step,
                                              const price::CostModel& costs) {
  search::CompileSettings other{.usual_pipeline = options.against, .pipeline = options.against};
  HEDDLE_TRY(search::CompileJob asked, options.plan.compile.JobFor(step.plan));
  HEDDLE_TRY(search::CompileJob job, other.JobFor(asked.plan.UpToLowering()));
  job.options.manager.measure = true;
  job.options.manager.costs = &costs;
  Module module = step.module;
  HEDDLE_TRY(compile::CompileReport report, compile::Compile(module, job.plan, job.options));
  HEDDLE_TRY(search::SimulatedModule simulated,
             search::SimulateModule(options.against, std::move(module), costs, options.simulate,
                                    search::PipelineFactsOf(job.plan.decisions)));
  simulated.passes = std::move(report.passes);
  simulated.trained = TrainedModel(step);
  return simulated;
}

// All micro-batches but the last leave the optimizer out.
Status AddOtherMicroBatches(const SimulationOptions& options, const PlanResult& plan,
                            std::span<price::Simulation> last) {
  int64_t count = plan.step.micro_batches();
  if (count == 1) return Done{};
  const heddle::compile::Plan& complete = plan.found.plan;
  HEDDLE_TRY(search::CompileJob job, options.plan.compile.JobFor(plan.step.plan));
  job.options.manager.costs = &plan.costs;
  ModelOptions model = options.plan.model;
  model.cluster = &options.plan.prices.cluster;
  HEDDLE_TRY(PlannedStep more, PlanPass(model, complete, {.accumulate = true}));
  HEDDLE_RETURN_IF_ERROR(compile::Compile(more.module, complete, job.options));
  HEDDLE_TRY(std::vector<price::Simulation> others,
             price::SimulateGraphs(more.module, plan.costs, options.simulate));
  price::AddMicroBatches(others, count, last);
  return Done{};
}

}  // namespace

namespace api {

Result<SimulationResult> Simulate(const SimulationOptions& options) {
  HEDDLE_TRY(price::PriceOptions prices, PricesOf(options.plan));
  HEDDLE_TRY(price::CostModel costs, prices.Load());
  HEDDLE_TRY(PlannedStep step, CapturePlanned(options.plan));
  std::string name = options.plan.compile.PipelineName(step.plan.decisions);
  std::vector<search::SimulatedModule> modules;
  if (options.against != name) {
    HEDDLE_TRY(search::SimulatedModule other, SimulateOther(options, step, costs));
    modules.push_back(std::move(other));
  }
  HEDDLE_TRY(PlanResult plan, CompilePlanned(options.plan, std::move(step), std::move(costs),
                                             options.plan.prices.cluster));
  HEDDLE_TRY(search::SimulatedModule asked,
             search::SimulateModule(name, plan.step.module, plan.costs, options.simulate,
                                    search::PipelineFactsOf(plan.found.plan.decisions)));
  asked.passes = plan.report.passes;
  asked.trained = TrainedModel(plan.step);
  HEDDLE_RETURN_IF_ERROR(AddOtherMicroBatches(options, plan, asked.simulations));
  modules.push_back(std::move(asked));
  return SimulationResult{std::move(modules), std::move(plan)};
}

}  // namespace api
}  // namespace heddle
