#include "heddle/cli/torch/plan/plan_diff.h"

#include <ostream>

#include <nlohmann/json.hpp>

#include "heddle/core/base/text.h"
#include "heddle/search/diff_costs.h"

namespace heddle {
namespace {

struct PlanPair {
  compile::Plan a;
  compile::Plan b;
};

Result<PlanPair> ReadPlans(const std::string& list, const Streams& streams) {
  std::vector<std::string_view> files = Split(list, ',');
  if (files.size() != 2)
    return Error(Diag::kUsage, "--diff takes two files with a comma between them; it is `{}`",
                 list);
  HEDDLE_RETURN_IF_ERROR(
      CheckOneInput("the first", std::string(files[0]), "the second", std::string(files[1])));
  std::vector<compile::Plan> plans;
  for (std::string_view file : files) {
    std::string path(Trim(file));
    HEDDLE_TRY(std::string text, ReadInput(path, streams));
    HEDDLE_TRY(compile::Plan plan, compile::ParsePlan(text, InputName(path)));
    plans.push_back(std::move(plan));
  }
  return PlanPair{std::move(plans[0]), std::move(plans[1])};
}

// Simulates both plans with the batch of the first.
Result<search::PlanComparison> CompareOnStep(const PlanPair& plans, const PlanOptions& options) {
  if (plans.a.automatic || plans.b.automatic)
    return Error(
        Diag::kUsage,
        "a plan that says `auto` has no costs; complete it with `heddle parallelize` first");
  HEDDLE_RETURN_IF_ERROR(options.model.CheckNoWeights());
  run::CaptureOptions capture{.optimizer = options.optimizer, .accumulate = true};
  HEDDLE_TRY(PlannedStep step, PlanStep(options.model, plans.a, capture));
  HEDDLE_TRY(search::CompileJob a, options.compile.JobFor(plans.a));
  HEDDLE_TRY(search::CompileJob b, options.compile.JobFor(plans.b));
  HEDDLE_TRY(price::PriceOptions prices, PricesOf(options));
  HEDDLE_TRY(price::CostModel costs, prices.Load());
  a.options.manager.costs = &costs;
  return search::CompareCosts(step.module, a.plan, b.plan, a.options);
}

}  // namespace

Result<ExitCode> RunPlanDiff(const std::string& files, bool costs, bool json,
                             const PlanOptions& options, const Streams& streams) {
  HEDDLE_TRY(PlanPair plans, ReadPlans(files, streams));
  std::vector<compile::PlanDifference> differences = compile::Diff(plans.a, plans.b);
  if (costs) {
    HEDDLE_TRY(search::PlanComparison comparison, CompareOnStep(plans, options));
    if (json)
      PrintJson(search::ToJson(comparison), streams);
    else
      streams.out << Format(comparison);
  } else if (json) {
    auto list = nlohmann::ordered_json::array();
    for (const compile::PlanDifference& d : differences)
      list.push_back({{"before", d.before}, {"after", d.after}});
    PrintJson(list, streams);
  } else {
    streams.out << Format(differences);
  }
  return differences.empty() ? ExitCode::kDone : ExitCode::kDiffers;
}

}  // namespace heddle
