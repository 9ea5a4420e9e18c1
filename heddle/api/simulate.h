// api::Simulate: plans a step and simulates it on a cluster, optionally with another pipeline, too.
//
//   SimulationOptions options;
//   options.plan.model.flavor = "8B";
//   options.plan.parallel.degrees[1] = 64;
//   HEDDLE_TRY(SimulationResult result, api::Simulate(options));
//   double seconds = Seconds(result.step().timeline.makespan);
#pragma once

#include "heddle/api/plan.h"
#include "heddle/search/evaluate/simulated_module.h"

namespace heddle {

struct SimulationOptions {
  PlanOptions plan = {};
  price::SimulateOptions simulate = {};
  // The pipeline to compare with. If it is the pipeline of the step, nothing is compared.
  std::string against = "none";
};

struct SimulationResult {
  // The planned step is the last module. The first is the compared step, if there is one.
  std::vector<search::SimulatedModule> modules;
  PlanResult plan;

  // The simulated step; in a pipeline, that of the slowest coordinate.
  const price::Simulation& step() const {
    const search::SimulatedModule& last = modules.back();
    return last.simulations[last.pipeline ? last.pipeline->slowest : 0];
  }
};

namespace api {

Result<SimulationResult> Simulate(const SimulationOptions& options);

}  // namespace api
}  // namespace heddle
