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
  // The optimizer of the step; unset: the step computes gradients only.
  std::optional<run::OptimizerOptions> optimizer = run::OptimizerOptions();
  // Finds the placements that minimize the step time on the cluster, on this mesh (`dp=32,tp=8`) or
  // on the mesh of the degrees.
  bool automatic = false;
  std::string mesh = {};
  search::WorkAmount work = search::AutoOptions().work;
  // The stage whose graph is stored in `report.text`.
  std::optional<compile::Stage> print = {};
  // With a pipeline, only the graph of this coordinate is stored.
  std::optional<int64_t> print_coordinate = {};
};

struct PlanResult {
  // Contains the compiled module: the graph that one rank runs.
  PlannedStep step;
  search::FoundPlan found;
  compile::CompileReport report;
  // With a pipeline, `summary` is that of the coordinate with the highest peak.
  price::StepSummary summary;
  std::vector<price::StepSummary> coordinates;
  // Notes for people: options without effect, and memory that exceeds the device's.
  std::vector<std::string> notes;
  // The device type whose kernels the step uses, such as `cuda`.
  std::string device;
  price::CostModel costs;
  // The time of the search for a plan.
  Nanos finding;
};

// The prices for the device whose kernels the step has.
Result<price::PriceOptions> PricesOf(const PlanOptions& options);
// The first part of api::Plan: captures the step. The plan may still contain `auto`.
Result<PlannedStep> CapturePlanned(const PlanOptions& options);
// The second part. `costs` is the cost model of `cluster`.
Result<PlanResult> CompilePlanned(const PlanOptions& options, PlannedStep step,
                                  price::CostModel costs, const std::string& cluster);

namespace api {

Result<PlanResult> Plan(const PlanOptions& options);

}  // namespace api
}  // namespace heddle
