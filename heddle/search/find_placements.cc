#include "heddle/search/find_placements.h"

#include <set>

#include <nlohmann/json.hpp>

#include "heddle/compile/passes/passes.h"
#include "heddle/core/base/clock.h"
#include "heddle/core/base/table.h"

namespace heddle::search {
namespace {

// Prices by simulation change the plan once or twice. After that the plans repeat or alternate.
constexpr int kRounds = 3;

class PlanFinder {
 public:
  PlanFinder(const Module& module, const compile::Plan& plan, const PlanRequest& request,
             const compile::CompileOptions& options)
      : module_(module), plan_(plan), request_(request), options_(options) {}

  Result<FoundPlacements> Run() {
    Clock clock;
    HEDDLE_TRY(AutoPlanner planner, AutoPlanner::Make(module_, plan_, *options_.manager.costs,
                                                      WorkLimit(request_.automatic.work)));
    found_.pricing = clock.Elapsed();
    if (!plan_.decisions.decides_memory()) budget_ = plan_.decisions.budget;
    HEDDLE_RETURN_IF_ERROR(
        TryAll(planner, budget_ ? LimitsFor(*budget_) : Limits{request_.automatic.memory}));
    if (request_.limit && !budget_ && !(is_chosen_ && FitsDevice(found_.trials[found_.chosen])))
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
    for (const RivalPlan& rival : request_.rivals) {
      // A preset that the graph does not support is not tried.
      if (Status tried = Try(rival.name, rival.plan); !tried.ok()) continue;
    }
    return Done{};
  }

  bool FitsDevice(const PlanTrial& trial) const {
    return trial.outcome.peak <= request_.limit->memory;
  }

  // The fastest plan exceeds the memory of a device: finds the fastest that fits.
  Status FitIntoDevice(AutoPlanner& planner) {
    Bytes memory = request_.limit->memory;
    is_chosen_ = false;
    if (request_.limit->may_recompute) {
      // Tries the same plans again, now with recomputation.
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

  // With a budget, activations are kept or recomputed, so they count completely or not at all.
  // Temporary values may need a share of the budget.
  static Limits LimitsFor(Bytes all) {
    Bytes half{all.value / 2};
    Bytes quarter{all.value / 4};
    return {std::nullopt, MemoryLimit{all, true}, MemoryLimit{all, false}, MemoryLimit{half, false},
            MemoryLimit{quarter, false}};
  }

  Status Solve(AutoPlanner& planner, const std::optional<MemoryLimit>& limit) {
    price::MoveShares shares;
    for (int round = 0; round < kRounds; ++round) {
      Clock clock;
      Result<AutoPlan> solved = planner.Find({.shares = shares, .memory = limit});
      found_.solving += clock.Elapsed();
      if (!solved.ok()) {
        // The work limit may run out; results so far count.
        if (round == 0) SetNothing(std::move(solved).failure(), std::nullopt);
        return Done{};
      }
      if (!is_solved_) found_.solved = *solved;
      is_solved_ = true;
      size_t before = found_.trials.size();
      HEDDLE_RETURN_IF_ERROR(Try(NameOf(limit, round), solved->plan));
      if (found_.trials.size() == before) return Done{};
      shares = found_.trials.back().shares;
    }
    return Done{};
  }

  static std::string NameOf(const std::optional<MemoryLimit>& limit, int round) {
    std::string name = round == 0 ? "solved" : fmt::format("repriced {}", round);
    if (!limit) return name;
    return fmt::format("{} in {}{}", name, Format(limit->bytes),
                       limit->counts_saved ? "" : " without activations");
  }

  // Adds a trial, unless the plan was tried already or does not fit into the budget.
  Status Try(std::string name, const compile::Plan& plan) {
    if (!texts_.insert(compile::FormatPlan(plan)).second) return Done{};
    Clock clock;
    // Plans differ in their placements only; their decisions are the same.
    compile::Plan whole = plan;
    whole.decisions = plan_.decisions;
    PlanTrial trial{std::move(name), plan, {}, {}, {}};
    std::optional<Bytes> least;
    Status tried = budget_ && compile::HasBackward(module_) ? FitMemory(whole, trial, least)
                                                            : Carry(whole, trial);
    if (!tried.ok() && tried.diagnostics()[0].kind == Diag::kInfeasible) {
      SetNothing(std::move(tried).failure(), least);
      return Done{};
    }
    if (!tried.ok()) return tried;
    found_.trials.push_back(std::move(trial));
    Consider(found_.trials.size() - 1);
    found_.trying += clock.Elapsed();
    return Done{};
  }

  // Tries a plan with the fastest memory decisions within the budget. If none fits, `least` is the
  // smallest peak.
  Status FitMemory(const compile::Plan& plan, PlanTrial& trial, std::optional<Bytes>& least) const {
    HEDDLE_TRY(LoweredStep lowered, LoweredStep::Make(module_, plan, options_));
    HEDDLE_TRY(auto search, lowered.Search(request_.offloads));
    Result<MemoryChoice> within = search->FindWithin(*budget_);
    if (!within.ok()) {
      least = search->least();
      return std::move(within).failure();
    }
    trial.outcome = *within;
    trial.shares = within->shares;
    trial.policy = within->policy;
    return Done{};
  }

  // Tries a plan with its own decisions.
  Status Carry(const compile::Plan& plan, PlanTrial& trial) const {
    Evaluator evaluator(*options_.manager.costs);
    compile::CompileOptions how = options_;
    how.print = {};
    how.manager = evaluator.Unchecked();
    Module module = module_;
    HEDDLE_RETURN_IF_ERROR(compile::Compile(module, plan, how));
    HEDDLE_TRY(Evaluation evaluated, evaluator.Run(std::move(module), {}));
    trial.outcome = evaluated.outcome;
    trial.shares = evaluated.shares;
    return Done{};
  }

  // Keeps the error that comes nearest to fitting.
  void SetNothing(Failure why, std::optional<Bytes> least) {
    if (least_ && (!least || *least >= *least_)) return;
    nothing_ = std::move(why);
    least_ = least;
  }

  const Module& module_;
  const compile::Plan& plan_;
  const PlanRequest& request_;
  const compile::CompileOptions& options_;
  FoundPlacements found_;
  // Maximum peak of a trial.
  std::optional<Bytes> budget_;
  bool is_solved_ = false;
  // Whether found_.chosen is a trial.
  bool is_chosen_ = false;
  std::set<std::string> texts_;
  // The error to report if nothing fits, and the smallest peak that it states.
  std::optional<Bytes> least_;
  Result<Done> nothing_ = Error(Diag::kInfeasible, "no plan fits");
};

}  // namespace

Result<LoweredStep> LoweredStep::Make(const Module& captured, const compile::Plan& plan,
                                      const compile::CompileOptions& options) {
  const price::CostModel* costs = options.manager.costs;
  HEDDLE_CHECK(costs != nullptr, "a budget needs costs");
  LoweredStep step{captured, {}, costs};
  std::vector<std::string> notes;
  HEDDLE_TRY(step.after, compile::FinalPasses(plan.decisions, options, notes));
  HEDDLE_RETURN_IF_ERROR(compile::Lower(step.module, plan));
  HEDDLE_TRY(compile::Pipeline clean,
             compile::ParsePipeline("clean", compile::Passes(), compile::Author::kProgram));
  HEDDLE_RETURN_IF_ERROR(compile::RunPipeline(step.module, clean, Evaluator(*costs).Unchecked()));
  return step;
}

Result<std::unique_ptr<MemorySearch>> LoweredStep::Search(bool offloads) const {
  return MemorySearch::Make(module, after, *costs, offloads);
}

Result<FoundPlacements> FindPlacements(const Module& module, const compile::Plan& plan,
                                       const PlanRequest& request,
                                       const compile::CompileOptions& options) {
  HEDDLE_CHECK(options.manager.costs != nullptr, "`auto` needs costs");
  if (request.tries_plans) return PlanFinder(module, plan, request, options).Run();
  Clock clock;
  FoundPlacements found;
  HEDDLE_TRY(found.solved, CompletePlan(module, plan, *options.manager.costs, request.automatic));
  found.plan = found.solved.plan;
  found.solving = clock.Elapsed();
  return found;
}

nlohmann::ordered_json ToJson(const FoundPlacements& found) {
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
    trials.push_back({{"name", trial.name}});
    trials.back().update(ToJson(trial.outcome));
    if (!trial.policy.empty()) trials.back()["policy"] = trial.policy;
  }
  out["tried"] = std::move(trials);
  out["chosen"] = found.trials[found.chosen].name;
  return out;
}

std::string FormatTrials(const FoundPlacements& found) {
  TextTable table({"plan", "step>", "exposed>", "peak>", ""});
  for (size_t i = 0; i < found.trials.size(); ++i) {
    const PlanTrial& trial = found.trials[i];
    table.AddRow({trial.name, Format(trial.outcome.step), Format(trial.outcome.exposed),
                  Format(trial.outcome.peak), i == found.chosen ? "chosen" : ""});
  }
  return table.Format();
}

}  // namespace heddle::search
