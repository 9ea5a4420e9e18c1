// api::Plan: captures a step, partitions it over ranks, and reports its memory, work and
// communication. Allocates no weights.
//
//   PlanOptions options;
//   options.model.flavor = "8B";
//   options.parallel.degrees[1] = 64;
//   HEDDLE_TRY(PlanResult result, api::Plan(options));
#pragma once

#include "heddle/api/planned_step.h"
#include "heddle/price/cost/price_options.h"
#include "heddle/price/cost/step_summary.h"
#include "heddle/search/compile_settings.h"

namespace heddle {

struct PlanOptions {
  // Without a device, the step uses the kernels of the cluster's devices.
  ModelOptions model = {};
  ParallelOptions parallel = {};
  search::CompileSettings compile = {};
  price::PriceOptions prices = {};
  // The optimizer of the step; none: the step has gradients only.
  std::optional<run::OptimizerOptions> optimizer = run::OptimizerOptions();
  // Finds the placements that make the step fastest on the cluster, on this mesh (`dp=32,tp=8`) or
  // on that of the degrees.
  bool automatic = false;
  std::string mesh = {};
  search::Allowance allowance = search::AutoOptions().allowance;
  // The stage whose graph `report.text` has.
  std::optional<compile::Stage> print = {};
};

struct PlanResult {
  // Its module is compiled: the graph that one rank runs.
  PlannedStep step;
  search::FoundPlan found;
  compile::CompileReport report;
  price::StepSummary summary;
  // For people: options without effect, and memory that a device does not have.
  std::vector<std::string> notes;
  // Whose kernels the step uses: `cuda`.
  std::string device;
  price::CostModel costs;
  // The time that the search for a plan took.
  Nanos finding;
};

// The first part of api::Plan: a captured step, and a plan that may still have to be found.
Result<PlannedStep> CapturePlanned(const PlanOptions& options);
// The second part. `costs` are those of `cluster`.
Result<PlanResult> CompilePlanned(const PlanOptions& options, PlannedStep step,
                                  price::CostModel costs, const std::string& cluster);

namespace api {

Result<PlanResult> Plan(const PlanOptions& options);

}  // namespace api
}  // namespace heddle
