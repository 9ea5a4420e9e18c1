// api::Simulate: plans a step and simulates it on a cluster, next to the same step with another
// pipeline.
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
  // The pipeline to compare with; the one of the step: no comparison.
  std::string against = "none";
};

struct SimulationResult {
  // The planned step is the last; the one that it is compared with, if any, the first.
  std::vector<search::SimulatedModule> modules;
  PlanResult plan;

  const price::Simulation& step() const { return modules.back().simulations[0]; }
};

namespace api {

Result<SimulationResult> Simulate(const SimulationOptions& options);

}  // namespace api
}  // namespace heddle
