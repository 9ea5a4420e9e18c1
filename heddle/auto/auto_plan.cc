#include "heddle/auto/auto_plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "heddle/auto/auto_problem.h"
#include "heddle/passes/parallel/deviations.h"
#include "heddle/plan/patterns.h"
#include "heddle/solve/conflict.h"

namespace heddle {
namespace {

constexpr double kConflictSeconds = 1;

class PlanWriter {
 public:
  PlanWriter(const Module& module, const Plan& given, const Decisions& decisions,
             const std::vector<uint32_t>& x)
      : module_(module),
        graph_(module.graphs[0]),
        decisions_(decisions),
        x_(x),
        plan_(given),
        numbers_(NodeNumbers(graph_)) {}

  Result<Plan> Run() {
    plan_.automatic = false;
    plan_.wide_tensor_grads = true;
    for (size_t d = 0; d < decisions_.all.size(); ++d) {
      const Decision& decision = decisions_.all[d];
      if (decision.is_given) continue;
      if (decision.kind == Decision::Kind::kInput) AddInput(decision, Lies(d));
      if (decision.kind == Decision::Kind::kStore) AddParam(decision, Lies(d), Lies(d + 1));
    }
    HEDDLE_RETURN_IF_ERROR(AddNodes());
    return std::move(plan_);
  }

 private:
  const OpSplit& Chosen(size_t d) const { return decisions_.all[d].choices[x_[d]]; }
  const Placement& Lies(size_t d) const { return Chosen(d).results[0]; }
  size_t RankOf(const Decision& decision) const {
    return graph_.types().rank(graph_.type(graph_.inputs()[decision.members[0]].value));
  }

  void AddInput(const Decision& decision, const Placement& placement) {
    if (!placement.replicated())
      plan_.inputs.push_back({decision.pattern, placement, RankOf(decision)});
  }
  void AddParam(const Decision& decision, const Placement& store, const Placement& compute) {
    size_t rank = RankOf(decision);
    plan_.params.push_back({decision.pattern, store, compute, rank, rank});
  }

  // Only what propagate would do otherwise is said; each statement may change what follows from it.
  Status AddNodes() {
    std::vector<const OpSplit*> chosen(graph_.node_count(), nullptr);
    for (size_t n = 0; n < chosen.size(); ++n) {
      uint32_t decision = decisions_.of_node[n];
      if (decision != Decisions::kNone) chosen[n] = &Chosen(decision);
    }
    std::set<uint32_t> said;
    for (;;) {
      HEDDLE_TRY(std::vector<NodeId> found, FindDeviations(module_, plan_, chosen));
      size_t before = said.size();
      for (NodeId node : found) said.insert(decisions_.of_node[node.index()]);
      if (said.size() == before) return Done{};
      plan_.nodes.clear();
      for (uint32_t decision : said) plan_.nodes.push_back(StatementOf(decision));
    }
  }

  PlanNode StatementOf(uint32_t d) const {
    const Decision& decision = decisions_.all[d];
    NodeId node(decision.members[0]);
    PlanNode out{decision.pattern, std::string(graph_.op(node).name()), graph_[node].phase,
                 static_cast<int64_t>(numbers_[node.index()])};
    auto rank = [&](ValueId v) { return v ? graph_.types().rank(graph_.type(v)) : 0; };
    size_t i = 0;
    for (ValueId v : graph_.operands(node))
      out.operands.push_back({Chosen(d).operands[i++], rank(v)});
    size_t r = 0;
    for (ValueId v : graph_.results(node)) out.results.push_back({Chosen(d).results[r++], rank(v)});
    return out;
  }

  const Module& module_;
  const Graph& graph_;
  const Decisions& decisions_;
  const std::vector<uint32_t>& x_;
  Plan plan_;
  std::vector<uint32_t> numbers_;
};

// Everything whole everywhere is always possible, if the user's statements leave it open. From there to an answer in which every
// reader pays for itself, and from there to the exact one.
PairwiseAnswer SolveShared(const AutoProblem& problems, const Decisions& decisions,
                           const Deadline& deadline) {
  std::vector<uint32_t> start(decisions.all.size());
  PairwiseAnswer apart =
      Solve(problems.apart, {.time_limit = deadline.Left() / 2, .starts = {start}});
  std::vector<std::vector<uint32_t>> starts{std::move(start)};
  if (!apart.x.empty()) starts.push_back(std::move(apart.x));
  for (std::vector<uint32_t>& x : starts) SetCopies(problems.exact, decisions, x);
  return Solve(problems.exact, {.time_limit = deadline.Left(), .starts = std::move(starts)});
}

// Among answers that cost the same, one that takes fewer words: parameters are read as most of their readers want them.
void Tidy(const PairwiseProblem& problem, const Decisions& decisions, std::vector<uint32_t>& x) {
  for (const auto& [move, count] : decisions.moves) {
    const Decision& decision = decisions.all[move.from.decision];
    if (decision.kind != Decision::Kind::kCompute || decision.choices.size() == 1) continue;
    for (const Slot& reader : move.to) {
      const Placement& wanted = At(decisions.all, reader, x[reader.decision]);
      auto at = std::ranges::find(decision.choices, wanted,
                                  [](const OpSplit& choice) { return choice.results[0]; });
      if (at == decision.choices.end()) continue;
      std::vector<uint32_t> other = x;
      other[move.from.decision] = static_cast<uint32_t>(at - decision.choices.begin());
      SetCopies(problem, decisions, other);
      if (Cost(problem, other) == Cost(problem, x)) x = std::move(other);
      break;
    }
  }
}

Status CheckRequest(const Module& module, const Plan& plan) {
  if (module.graphs.size() != 1)
    return Error(Diag::kPlan, "`auto` is for one graph, the module has {}", module.graphs.size());
  for (const PlanLayer& layer : plan.layers)
    return Error(Diag::kPlan,
                 "line {} of the plan: a `module` statement and `auto` do not go together; fix "
                 "parameters and inputs instead",
                 layer.line);
  for (const PlanNode& node : plan.nodes)
    return Error(Diag::kPlan,
                 "line {} of the plan: a `node` statement and `auto` do not go together; fix "
                 "parameters and inputs instead",
                 node.line);
  return CheckPatterns(module, plan);
}

Failure Infeasible(const PairwiseProblem& problem) {
  Conflict conflict = FindConflict(problem, kConflictSeconds);
  if (conflict.budgets.empty())
    return Error(Diag::kInfeasible, "no plan carries out what is asked for; these conflict: {}",
                 Format(problem, conflict));
  Bytes least{static_cast<int64_t>(conflict.nearest_amount)};
  Bytes budget{static_cast<int64_t>(problem.budgets[0].hi)};
  return std::isnan(conflict.nearest_amount)
             ? Error(Diag::kInfeasible, "no plan fits into {} of each rank", Format(budget))
             : Error(Diag::kInfeasible,
                     "no plan fits into {} of each rank; the least possible is {}", Format(budget),
                     Format(least));
}

}  // namespace

Result<Plan> PlanOf(const Module& module, const Plan& given, const Decisions& decisions,
                    const std::vector<uint32_t>& x) {
  return PlanWriter(module, given, decisions, x).Run();
}

Result<AutoPlan> CompletePlan(const Module& module, const Plan& plan, const CostModel& model,
                              const AutoOptions& options) {
  HEDDLE_RETURN_IF_ERROR(CheckRequest(module, plan));
  const Graph& graph = module.graphs[0];
  Deadline deadline(options.time_limit);
  HEDDLE_TRY(Decisions decisions, FindDecisions(graph, plan, deadline));
  HEDDLE_TRY(AutoProblem problems,
             MakeAutoProblem(graph, plan, decisions, model, options.memory, deadline));
  const PairwiseProblem& problem = problems.exact;
  PairwiseAnswer answer = SolveShared(problems, decisions, deadline);
  if (answer.outcome == SolveOutcome::kInfeasible) return Infeasible(problem);
  if (answer.outcome == SolveOutcome::kNoAnswer)
    return Error(Diag::kNoAnswer, "no plan was found in {} s", options.time_limit);
  Tidy(problem, decisions, answer.x);
  AutoPlan out;
  HEDDLE_TRY(out.plan, PlanOf(module, plan, decisions, answer.x));
  out.cost = {static_cast<int64_t>(answer.objective)};
  out.bound = {static_cast<int64_t>(std::floor(answer.bound))};
  out.size = SizeOf(problem);
  out.counts = answer.counts;
  if (options.memory) out.memory = {static_cast<int64_t>(Amount(problem.budgets[0], answer.x))};
  return out;
}

}  // namespace heddle
