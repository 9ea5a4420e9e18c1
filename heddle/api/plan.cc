#include "heddle/api/plan.h"

#include <algorithm>

#include "heddle/core/base/clock.h"
#include "heddle/core/ir/mesh_flag.h"
#include "heddle/core/ir/program.h"
#include "heddle/price/sim/step_memory.h"

namespace heddle {
namespace {

// Fails for options that specify what --parallelism.auto chooses.
Status CheckAutomatic(const PlanOptions& options) {
  const ParallelOptions& parallel = options.parallel;
  if (!options.automatic && !options.mesh.empty())
    return Error(Diag::kUsage,
                 "--mesh needs --parallelism.auto; without it, give degrees, as in "
                 "--parallelism.data_parallel_shard_degree=8");
  if (!options.automatic) return Done{};
  if (!parallel.plan_file.empty())
    return Error(Diag::kUsage,
                 "--plan conflicts with --parallelism.auto, which finds a plan; drop one");
  if (!options.mesh.empty() && parallel.HasDegrees() && parallel.expert == 1)
    return Error(Diag::kUsage, "--mesh conflicts with degrees of parallelism; drop one");
  if (parallel.pipeline.degree > 1)
    return Error(Diag::kUsage,
                 "--parallelism.auto does not search pipelines yet; remove "
                 "--parallelism.pipeline_parallel_degree");
  ParallelOptions usual;
  const std::pair<std::string_view, bool> stated[] = {
      {"expert_parallel_degree", parallel.expert != usual.expert},
      {"enable_sequence_parallel", parallel.sequence_parallel != usual.sequence_parallel},
      {"disable_loss_parallel", parallel.gather_logits != usual.gather_logits},
      {"tensor_gradients", parallel.wide_tensor_gradients != usual.wide_tensor_gradients}};
  for (const auto& [flag, differs] : stated) {
    if (differs)
      return Error(Diag::kUsage,
                   "--parallelism.{} conflicts with --parallelism.auto, which chooses it; drop one",
                   flag);
  }
  if (parallel.narrow_gradients)
    return Error(Diag::kUsage,
                 "--training.mixed_precision_reduce conflicts with --parallelism.auto, which "
                 "chooses it; drop one");
  return Done{};
}

ModelOptions OnCluster(const PlanOptions& options) {
  ModelOptions model = options.model;
  model.cluster = &options.prices.cluster;
  return model;
}

search::PlanRequest RequestFor(const PlanOptions& options, const PlannedStep& step,
                               const std::string& cluster, const price::CostModel& costs) {
  search::PlanRequest request;
  request.cluster = cluster;
  request.offloads = step.model.numerics.target == run::Target::kCuda;
  if (!options.automatic) return request;
  request.automatic.work = options.work;
  request.tries_plans = true;
  request.rivals = step.rivals;
  request.limit =
      search::DeviceLimit{costs.cluster().device.memory, options.compile.checkpoint_mode.empty()};
  return request;
}

std::vector<std::string> NotesOf(const PlanResult& result) {
  std::vector<std::string> notes = result.report.notes;
  const std::optional<search::FoundPlacements>& placements = result.found.placements;
  if (placements && placements->budget)
    notes.push_back(
        fmt::format("the fastest plan without recomputation needs {}, and a device has {}; this "
                    "plan is the fastest that fits",
                    Format(placements->too_large), Format(*placements->budget)));
  Bytes memory = result.costs.cluster().device.memory;
  if (result.summary.device_peak() > memory)
    notes.push_back(fmt::format("the step needs {}, more than the {} of a device",
                                Format(result.summary.device_peak()), Format(memory)));
  for (const compile::PassRecord& record : result.report.passes) {
    for (const compile::Remark& remark : record.remarks) {
      if (remark.kind == compile::RemarkKind::kGradientsDivided) notes.push_back(remark.text);
    }
  }
  return notes;
}

price::StepSummary SummaryOf(const Module& module, const Graph& graph,
                             const price::CostModel& costs, Flops whole_work = {}) {
  price::StepSummary summary = price::Summarize(module, graph, whole_work);
  if (costs.HasDeviceProgram())
    summary.program_peak = price::MemoryOfStep(graph, costs, summary.peak_bytes).peak;
  return summary;
}

}  // namespace

Result<price::PriceOptions> PricesOf(const PlanOptions& options) {
  price::PriceOptions prices = options.prices;
  HEDDLE_TRY(std::string device, OnCluster(options).DeviceName());
  prices.on_cpu = device == Name(price::DeviceType::kCpu);
  return prices;
}

Result<PlannedStep> CapturePlanned(const PlanOptions& options) {
  ModelOptions model = OnCluster(options);
  HEDDLE_RETURN_IF_ERROR(model.CheckNoWeights());
  HEDDLE_RETURN_IF_ERROR(CheckAutomatic(options));
  run::CaptureOptions capture{.optimizer = options.optimizer, .accumulate = true};
  if (!options.automatic) return PlanStep(model, options.parallel, capture);
  ParallelOptions::Layout layout;
  if (options.mesh.empty()) {
    HEDDLE_TRY(run::ModelConfig config, model.Config());
    HEDDLE_TRY(layout, options.parallel.MakeLayout(config));
  } else {
    HEDDLE_TRY(layout.mesh, ParseMeshFlag(options.mesh));
    layout.batch_ranks = BatchRanks(layout.mesh);
  }
  return PlanAutoStep(model, options.parallel, std::move(layout), capture);
}

Result<PlanResult> CompilePlanned(const PlanOptions& options, PlannedStep step,
                                  price::CostModel costs, const std::string& cluster) {
  HEDDLE_TRY(search::CompileJob job, options.compile.JobFor(step.plan));
  compile::CompileOptions& how = job.options;
  how.notes.insert(how.notes.begin(), step.layout.notes.begin(), step.layout.notes.end());
  how.manager.measure = true;
  how.manager.costs = &costs;
  how.print = options.print;
  how.print_coordinate = options.print_coordinate;
  Clock clock;
  HEDDLE_TRY(
      search::FoundPlan found,
      search::FindPlan(step.module, job.plan, RequestFor(options, step, cluster, costs), how));
  Nanos finding = clock.Elapsed();
  HEDDLE_TRY(compile::CompileReport report, compile::Compile(step.module, found.plan, how));
  HEDDLE_TRY(std::string device, OnCluster(options).DeviceName());
  price::StepSummary summary;
  std::vector<price::StepSummary> coordinates;
  if (ProgramAxis(step.module)) {
    for (const Graph& graph : step.module.graphs)
      coordinates.push_back(SummaryOf(step.module, graph, costs));
    summary = *std::ranges::max_element(coordinates, {}, &price::StepSummary::device_peak);
  } else {
    summary = SummaryOf(step.module, SharedProgram(step.module), costs, report.whole_work[0]);
  }
  PlanResult result{.step = std::move(step),
                    .found = std::move(found),
                    .report = std::move(report),
                    .summary = std::move(summary),
                    .coordinates = std::move(coordinates),
                    .notes = {},
                    .device = std::move(device),
                    .costs = std::move(costs),
                    .finding = finding};
  result.notes = NotesOf(result);
  return result;
}

namespace api {

Result<PlanResult> Plan(const PlanOptions& options) {
  HEDDLE_TRY(PlannedStep step, CapturePlanned(options));
  HEDDLE_TRY(price::PriceOptions prices, PricesOf(options));
  bool chosen = options.model.given && options.model.given("--cluster");
  HEDDLE_TRY(prices.cluster, search::ClusterFor(step.plan, prices.cluster, chosen));
  HEDDLE_TRY(price::CostModel costs, prices.Load());
  return CompilePlanned(options, std::move(step), std::move(costs), prices.cluster);
}

}  // namespace api
}  // namespace heddle
