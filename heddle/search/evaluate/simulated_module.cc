#include "heddle/search/evaluate/simulated_module.h"

#include "heddle/core/ir/program.h"

namespace heddle::search {

price::PipelineFacts PipelineFactsOf(const compile::PlanDecisions& decisions) {
  if (!decisions.stages) return {};
  return {ScheduleName(decisions.stages->schedule), decisions.stages->first_positions};
}

Result<SimulatedModule> SimulateModule(std::string name, Module module,
                                       const price::CostModel& model,
                                       const price::SimulateOptions& options,
                                       const price::PipelineFacts& facts) {
  SimulatedModule out{std::move(name), std::move(module)};
  HEDDLE_TRY(out.simulations, price::SimulateGraphs(out.module, model, options));
  if (ProgramAxis(out.module))
    out.pipeline = price::DescribePipeline(out.module, out.simulations, facts);
  return out;
}

}  // namespace heddle::search
