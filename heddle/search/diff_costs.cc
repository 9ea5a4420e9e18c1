#include "heddle/search/diff_costs.h"

#include <nlohmann/json.hpp>

#include "heddle/core/base/table.h"
#include "heddle/core/base/text.h"

namespace heddle::search {
namespace {

// Returns the text of a plan with one line replaced by that of another plan.
std::string WithDifference(std::string_view text, const compile::PlanDifference& difference) {
  std::string out;
  for (std::string_view line : Split(text, '\n')) {
    std::string_view said = !difference.before.empty() && line == difference.before
                                ? std::string_view(difference.after)
                                : line;
    if (!said.empty()) out += fmt::format("{}\n", said);
  }
  if (difference.before.empty()) out += difference.after + "\n";
  return out;
}

Result<StepOutcome> OutcomeOf(const Module& captured, const compile::Plan& plan,
                              const compile::CompileOptions& options) {
  compile::CompileOptions how = options;
  how.print = {};
  Module module = captured;
  HEDDLE_RETURN_IF_ERROR(compile::Compile(module, plan, how));
  Evaluator evaluator(*options.manager.costs);
  HEDDLE_TRY(Evaluation evaluated, evaluator.Run(std::move(module), {}));
  return evaluated.outcome;
}

std::string Signed(Nanos time) {
  return time.value < 0 ? "-" + Format(Nanos{-time.value}) : "+" + Format(time);
}
std::string Signed(Bytes bytes) {
  return bytes.value < 0 ? "-" + Format(Bytes{-bytes.value}) : "+" + Format(bytes);
}

}  // namespace

Result<PlanComparison> CompareCosts(const Module& module, const compile::Plan& a,
                                    const compile::Plan& b,
                                    const compile::CompileOptions& options) {
  std::string text = compile::FormatPlan(a);
  PlanComparison out;
  HEDDLE_TRY(out.before, OutcomeOf(module, a, options));
  HEDDLE_TRY(out.after, OutcomeOf(module, b, options));
  for (compile::PlanDifference& difference : compile::Diff(a, b)) {
    auto changed = [&]() -> Result<StepOutcome> {
      HEDDLE_TRY(compile::Plan plan, compile::ParsePlan(WithDifference(text, difference), "plan"));
      return OutcomeOf(module, plan, options);
    };
    Result<StepOutcome> alone = changed();
    DifferenceCost cost{std::move(difference), std::nullopt, ""};
    if (alone.ok()) cost.alone = *alone;
    if (!alone.ok()) cost.refusal = alone.diagnostics()[0].message;
    out.differences.push_back(std::move(cost));
  }
  return out;
}

std::string Format(const PlanComparison& comparison) {
  std::string out;
  for (const DifferenceCost& cost : comparison.differences) {
    out += Format(std::vector<compile::PlanDifference>{cost.difference});
    if (cost.alone) {
      out += fmt::format("  alone: step {}, peak {}\n",
                         Signed(cost.alone->step - comparison.before.step),
                         Signed(cost.alone->peak - comparison.before.peak));
    } else {
      out += fmt::format("  alone it is no plan: {}\n", cost.refusal);
    }
  }
  TextTable table({"", "step>", "exposed>", "peak>"});
  auto add = [&](std::string name, const StepOutcome& outcome) {
    table.AddRow(
        {std::move(name), Format(outcome.step), Format(outcome.exposed), Format(outcome.peak)});
  };
  add("-", comparison.before);
  add("+", comparison.after);
  return out + (out.empty() ? "" : "\n") + table.Format();
}

nlohmann::ordered_json ToJson(const PlanComparison& comparison) {
  auto list = nlohmann::ordered_json::array();
  for (const DifferenceCost& cost : comparison.differences) {
    list.push_back({{"before", cost.difference.before}, {"after", cost.difference.after}});
    if (cost.alone) list.back()["alone"] = ToJson(*cost.alone);
    if (!cost.alone) list.back()["refusal"] = cost.refusal;
  }
  return {{"before", ToJson(comparison.before)},
          {"after", ToJson(comparison.after)},
          {"differences", std::move(list)}};
}

}  // namespace heddle::search
