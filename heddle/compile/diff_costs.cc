#include "heddle/compile/diff_costs.h"

#include <nlohmann/json.hpp>

#include "heddle/base/text.h"
#include "heddle/report/launches.h"
#include "heddle/report/table.h"

namespace heddle {
namespace {

// The lines of a plan with one of them as another plan has it.
std::string WithDifference(std::string_view text, const PlanDifference& difference) {
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

Result<StepOutcome> OutcomeOf(const Module& captured, std::string plan,
                              const CompileOptions& options, const CostModel& model) {
  CompileOptions how = options;
  HEDDLE_TRY(Plan parsed, ParsePlan(plan, "plan"));
  SetDecisions(parsed.decisions, how);
  how.plan = std::move(plan);
  how.print = {};
  Module module = captured;
  HEDDLE_RETURN_IF_ERROR(Compile(module, how));
  return MeasureStep(module, model);
}

std::string Signed(Nanos time) {
  return time.value < 0 ? "-" + Format(Nanos{-time.value}) : "+" + Format(time);
}
std::string Signed(Bytes bytes) {
  return bytes.value < 0 ? "-" + Format(Bytes{-bytes.value}) : "+" + Format(bytes);
}

nlohmann::ordered_json ToJson(const StepOutcome& outcome) {
  return {{"step_ms", Millis(outcome.step)},
          {"exposed_ms", Millis(outcome.exposed)},
          {"peak_bytes", outcome.peak.value}};
}

}  // namespace

Result<PlanComparison> CompareCosts(const Module& module, const Plan& a, const Plan& b,
                                    const CompileOptions& options, const CostModel& model) {
  std::string text = FormatPlan(a);
  PlanComparison out;
  HEDDLE_TRY(out.before, OutcomeOf(module, text, options, model));
  HEDDLE_TRY(out.after, OutcomeOf(module, FormatPlan(b), options, model));
  for (PlanDifference& difference : Diff(a, b)) {
    Result<StepOutcome> alone = OutcomeOf(module, WithDifference(text, difference), options, model);
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
    out += Format(std::vector<PlanDifference>{cost.difference});
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

}  // namespace heddle
