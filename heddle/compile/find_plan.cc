#include "heddle/compile/find_plan.h"

#include <set>

#include <nlohmann/json.hpp>

#include "heddle/base/clock.h"
#include "heddle/compile/compile.h"
#include "heddle/report/launches.h"
#include "heddle/report/table.h"

namespace heddle {
namespace {

// Prices by simulation change the plan once or twice; after that they repeat, or go to and fro.
constexpr int kRounds = 3;

class PlanFinder {
 public:
  PlanFinder(const Module& module, const Plan& plan, const CompileOptions& options,
             const CostModel& model)
      : module_(module), plan_(plan), options_(options), model_(model) {}

  Result<FoundPlan> Run() {
    Clock clock;
    HEDDLE_TRY(AutoPlanner planner,
               AutoPlanner::Make(module_, plan_, model_, Limit(options_.automatic.allowance)));
    found_.pricing = clock.Elapsed();
    budget_ = options_.budget;
    HEDDLE_RETURN_IF_ERROR(
        TryAll(planner, budget_ ? LimitsFor(*budget_) : Limits{options_.automatic.memory}));
    if (options_.limit && !budget_ && !(is_chosen_ && FitsDevice(found_.trials[found_.chosen])))
      HEDDLE_RETURN_IF_ERROR(FitIntoDevice(planner));
    if (!is_chosen_) return std::move(nothing_).failure();
    found_.plan = found_.trials[found_.chosen].plan;
    return std::move(found_);
  }

 private:
  using Limits = std::vector<std::optional<MemoryLimit>>;

  Status TryAll(AutoPlanner& planner, const Limits& limits) {
    for (const std::optional<MemoryLimit>& limit : limits)
      HEDDLE_RETURN_IF_ERROR(Solve(planner, limit));
    for (const RivalPlan& rival : options_.rivals) {
      // A preset that does not suit the graph is no rival.
      if (Status tried = Try(rival.name, rival.plan); !tried.ok()) continue;
    }
    return Done{};
  }

  bool FitsDevice(const PlanTrial& trial) const {
    return trial.outcome.peak <= options_.limit->memory;
  }

  // The fastest plan needs more than the device has: finds the fastest that does not.
  Status FitIntoDevice(AutoPlanner& planner) {
    Bytes memory = options_.limit->memory;
    is_chosen_ = false;
    if (options_.limit->may_recompute) {
      // The same plans are tried again, now with recomputation.
      if (!found_.trials.empty()) found_.too_large = found_.trials[found_.chosen].outcome.peak;
      found_.trials.clear();
      texts_.clear();
      found_.budget = budget_ = memory;
      return TryAll(planner, LimitsFor(memory));
    }
    HEDDLE_RETURN_IF_ERROR(TryAll(planner, LimitsFor(memory)));
    const PlanTrial* least = nullptr;
    for (size_t i = 0; i < found_.trials.size(); ++i) {
      const PlanTrial& trial = found_.trials[i];
      if (FitsDevice(trial)) Consider(i);
      if (least == nullptr || trial.outcome.peak < least->outcome.peak) least = &trial;
    }
    if (!is_chosen_ && least != nullptr)
      nothing_ = Error(Diag::kInfeasible,
                       "no plan fits into the {} of a device; the least possible is {}, with "
                       "`{}`",
                       Format(memory), Format(least->outcome.peak), least->name);
    return Done{};
  }

  void Consider(size_t trial) {
    if (is_chosen_ &&
        found_.trials[trial].outcome.step >= found_.trials[found_.chosen].outcome.step)
      return;
    is_chosen_ = true;
    found_.chosen = trial;
  }

  // With a budget, activations are kept, or computed again, so that they count in full or not at all; and what passes for a moment may
  // want its share.
  static Limits LimitsFor(Bytes all) {
    Bytes half{all.value / 2};
    Bytes quarter{all.value / 4};
    return {std::nullopt, MemoryLimit{all, true}, MemoryLimit{all, false}, MemoryLimit{half, false},
            MemoryLimit{quarter, false}};
  }

  Status Solve(AutoPlanner& planner, const std::optional<MemoryLimit>& limit) {
    MoveShares shares;
    for (int round = 0; round < kRounds; ++round) {
      Clock clock;
      Result<AutoPlan> solved = planner.Find({.shares = shares, .memory = limit});
      found_.solving += clock.Elapsed();
      if (!solved.ok()) {
        // The limit may be spent on the way; what was found until then counts.
        if (round == 0) SetNothing(std::move(solved).failure(), std::nullopt);
        return Done{};
      }
      if (!is_solved_) found_.solved = *solved;
      is_solved_ = true;
      size_t before = found_.trials.size();
      HEDDLE_RETURN_IF_ERROR(Try(NameOf(limit, round), solved->plan));
      if (found_.trials.size() == before) return Done{};
      shares = found_.trials.back().outcome.shares;
    }
    return Done{};
  }

  static std::string NameOf(const std::optional<MemoryLimit>& limit, int round) {
    std::string name = round == 0 ? "solved" : fmt::format("repriced {}", round);
    if (!limit) return name;
    return fmt::format("{} in {}{}", name, Format(limit->bytes),
                       limit->counts_saved ? "" : " without activations");
  }

  // A plan that was tried already, or that fits into no budget, is none.
  Status Try(std::string name, const Plan& plan) {
    std::string text = FormatPlan(plan);
    if (!texts_.insert(text).second) return Done{};
    Clock clock;
    CompileOptions how = options_;
    how.plan = std::move(text);
    how.print = {};
    how.budget = budget_;
    // What is taken runs once more, with checks.
    how.manager = {};
    how.manager.check = false;
    Module module = module_;
    std::optional<Bytes> least;
    how.least_peak = &least;
    Result<CompileReport> report = Compile(module, how);
    if (!report.ok() && report.diagnostics()[0].kind == Diag::kInfeasible) {
      SetNothing(std::move(report).failure(), least);
      return Done{};
    }
    if (!report.ok()) return std::move(report).failure();
    HEDDLE_TRY(StepOutcome outcome, MeasureStep(module, model_));
    found_.trials.push_back(
        {std::move(name), plan, outcome, report->memory ? report->memory->policy : std::string()});
    Consider(found_.trials.size() - 1);
    found_.trying += clock.Elapsed();
    return Done{};
  }

  // Keeps the reason that comes nearest to fitting.
  void SetNothing(Failure why, std::optional<Bytes> least) {
    if (least_ && (!least || *least >= *least_)) return;
    nothing_ = std::move(why);
    least_ = least;
  }

  const Module& module_;
  const Plan& plan_;
  const CompileOptions& options_;
  const CostModel& model_;
  FoundPlan found_;
  // The largest peak of a trial.
  std::optional<Bytes> budget_;
  bool is_solved_ = false;
  // found_.chosen is a trial.
  bool is_chosen_ = false;
  std::set<std::string> texts_;
  // The reason to report if nothing fits, and the least peak that it names.
  std::optional<Bytes> least_;
  Result<Done> nothing_ = Error(Diag::kInfeasible, "no plan fits");
};

}  // namespace

Result<FoundPlan> FindPlan(const Module& module, const Plan& plan, const CompileOptions& options,
                           const CostModel& model) {
  if (options.tries_plans) return PlanFinder(module, plan, options, model).Run();
  Clock clock;
  FoundPlan found;
  HEDDLE_TRY(found.solved, CompletePlan(module, plan, model, options.automatic));
  found.plan = found.solved.plan;
  found.solving = clock.Elapsed();
  return found;
}

nlohmann::ordered_json ToJson(const FoundPlan& found) {
  const AutoPlan& solved = found.solved;
  nlohmann::ordered_json out = {
      {"cost_ns", solved.cost.value},   {"objective_ns", solved.objective.value},
      {"bound_ns", solved.bound.value}, {"variables", solved.size.variables},
      {"choices", solved.size.choices}, {"edges", solved.size.edges},
      {"entries", solved.size.entries}, {"sweeps", solved.counts.sweeps},
      {"joins", solved.counts.joins},   {"branches", solved.counts.branches},
      {"memory", solved.memory.value},
  };
  if (found.trials.empty()) return out;
  auto trials = nlohmann::ordered_json::array();
  for (const PlanTrial& trial : found.trials) {
    trials.push_back({{"name", trial.name},
                      {"step_ms", Millis(trial.outcome.step)},
                      {"exposed_ms", Millis(trial.outcome.exposed)},
                      {"peak_bytes", trial.outcome.peak.value}});
    if (!trial.policy.empty()) trials.back()["policy"] = trial.policy;
  }
  out["tried"] = std::move(trials);
  out["chosen"] = found.trials[found.chosen].name;
  return out;
}

std::string FormatTrials(const FoundPlan& found) {
  TextTable table({"plan", "step>", "exposed>", "peak>", ""});
  for (size_t i = 0; i < found.trials.size(); ++i) {
    const PlanTrial& trial = found.trials[i];
    table.AddRow({trial.name, Format(trial.outcome.step), Format(trial.outcome.exposed),
                  Format(trial.outcome.peak), i == found.chosen ? "chosen" : ""});
  }
  return table.Format();
}

}  // namespace heddle
