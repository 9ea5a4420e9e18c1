#include "heddle/search/compile_graph.h"

namespace heddle::search {
namespace {

// How a plan is completed and compiled. The options point to the costs.
struct Prepared {
  CompileJob job;
  PlanRequest request;
  std::unique_ptr<price::CostModel> costs;
};

Result<Prepared> Prepare(const GraphJob& job) {
  Prepared out;
  HEDDLE_TRY(out.job, job.settings.JobFor(job.plan));
  price::PriceOptions prices = job.prices;
  HEDDLE_TRY(prices.cluster, ClusterFor(out.job.plan, prices.cluster, job.chose_cluster));
  HEDDLE_TRY(price::CostModel costs, prices.Load());
  out.costs = std::make_unique<price::CostModel>(std::move(costs));
  out.job.options.print = job.print;
  out.job.options.manager.costs = out.costs.get();
  out.job.options.manager.measure = job.measure;
  out.request = job.request;
  out.request.cluster = prices.cluster;
  return out;
}

}  // namespace

Result<compile::Plan> CompleteGraphPlan(const Module& module, const GraphJob& job) {
  HEDDLE_TRY(Prepared how, Prepare(job));
  HEDDLE_TRY(FoundPlan found, FindPlan(module, how.job.plan, how.request, how.job.options));
  return std::move(found.plan);
}

Result<CompiledGraph> CompileGraph(Module& module, const GraphJob& job) {
  HEDDLE_TRY(Prepared how, Prepare(job));
  HEDDLE_TRY(FoundPlan found, FindPlan(module, how.job.plan, how.request, how.job.options));
  HEDDLE_TRY(compile::CompileReport report, compile::Compile(module, found.plan, how.job.options));
  return CompiledGraph{std::move(found), std::move(report), std::move(how.request.cluster),
                       *std::move(how.costs)};
}

}  // namespace heddle::search
