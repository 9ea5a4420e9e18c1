#include "heddle/search/placement/auto_plan.h"

#include <algorithm>
#include <cmath>
#include <set>

#include <fmt/ranges.h>

#include "heddle/compile/passes/parallel/propagate/deviations.h"
#include "heddle/compile/passes/parallel/propagate/plannable.h"
#include "heddle/compile/plan/patterns.h"
#include "heddle/search/placement/placement_problem.h"
#include "heddle/search/solve/conflict.h"

namespace heddle::search {
namespace {

// Work limits, as seconds of one core.
constexpr double kConflictSeconds = 1;
constexpr double kLeastSeconds = 0.1;
// Shares of prices are estimates, so only full prices are solved exactly.
constexpr double kOtherPricesGap = 0.005;

class PlanWriter {
 public:
  PlanWriter(const Module& module, const compile::Plan& given, const Decisions& decisions,
             const std::vector<uint32_t>& x)
      : module_(module),
        graph_(module.graphs[0]),
        decisions_(decisions),
        x_(x),
        plan_(given),
        numbers_(compile::NodeNumbers(graph_)) {}

  Result<compile::Plan> Run() {
    plan_.automatic = false;
    // The decisions already contain these statements. Applying both would redistribute twice.
    plan_.modules.clear();
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
  const compile::OpSplit& Chosen(size_t d) const { return decisions_.all[d].choices[x_[d]]; }
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

  // Adds only statements that differ from the choices of propagate. Each may change later
  // choices.
  Status AddNodes() {
    std::vector<const compile::OpSplit*> chosen(graph_.node_count(), nullptr);
    for (size_t n = 0; n < chosen.size(); ++n) {
      uint32_t decision = decisions_.of_node[n];
      if (decision != Decisions::kNone) chosen[n] = &Chosen(decision);
    }
    std::set<uint32_t> said;
    for (;;) {
      HEDDLE_TRY(std::vector<NodeId> found, compile::FindDeviations(module_, plan_, chosen));
      size_t before = said.size();
      for (NodeId node : found) said.insert(decisions_.of_node[node.index()]);
      if (said.size() == before) return Done{};
      plan_.nodes.clear();
      for (uint32_t decision : said) plan_.nodes.push_back(StatementOf(decision));
    }
  }

  compile::PlanNode StatementOf(uint32_t d) const {
    const Decision& decision = decisions_.all[d];
    NodeId node(decision.members[0]);
    compile::PlanNode out{decision.pattern, std::string(graph_.op(node).name()), graph_[node].phase,
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
  compile::Plan plan_;
  std::vector<uint32_t> numbers_;
};

// Among answers with equal cost, prefers one with fewer statements: parameters are read as most of
// their consumers want them.
void Tidy(const PairwiseProblem& problem, const Decisions& decisions, std::vector<uint32_t>& x) {
  for (const auto& [move, count] : decisions.moves) {
    const Decision& decision = decisions.all[move.from.decision];
    if (decision.kind != Decision::Kind::kCompute || decision.choices.size() == 1) continue;
    for (const Slot& reader : move.to) {
      const Placement& wanted = At(decisions.all, reader, x[reader.decision]);
      auto at = std::ranges::find(decision.choices, wanted,
                                  [](const compile::OpSplit& choice) { return choice.results[0]; });
      if (at == decision.choices.end()) continue;
      std::vector<uint32_t> other = x;
      other[move.from.decision] = static_cast<uint32_t>(at - decision.choices.begin());
      if (Cost(problem, other) == Cost(problem, x)) x = std::move(other);
      break;
    }
  }
}

Status CheckRequest(const Module& module, const compile::Plan& plan) {
  HEDDLE_RETURN_IF_ERROR(compile::CheckPlannable(module, plan));
  if (module.graphs.size() != 1)
    return Error(Diag::kPlan, "`auto` is for one graph, the module has {}", module.graphs.size());
  for (const compile::PlanModule& layer : plan.modules) {
    if (!layer.local.empty() || !layer.experts.empty() || !layer.context.empty() ||
        layer.decomposes_log_softmax || layer.why != Why::kTensor)
      return Error(Diag::kPlan,
                   "line {} of the plan: with `auto`, a `module` statement says `in` and `out`, "
                   "and nothing else",
                   layer.line);
  }
  if (plan.narrow_grads)
    return Error(Diag::kPlan,
                 "`auto` reduces gradients in the wide type; the plan says "
                 "`data-grads narrow`");
  for (const compile::PlanNode& node : plan.nodes)
    return Error(Diag::kPlan,
                 "line {} of the plan: a `node` statement and `auto` do not go together; fix "
                 "parameters and inputs instead",
                 node.line);
  return Done{};
}

Failure Infeasible(const PairwiseProblem& problem) {
  Conflict conflict = FindConflict(problem, WorkLimit(WorkAmount::Work(kConflictSeconds)));
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

// Finds a smallest set of statements of the plan that, with the limit, is infeasible.
class StatementConflict {
 public:
  StatementConflict(const Module& module, const compile::Plan& plan, const price::CostModel& model,
                    const AutoOptions& options)
      : module_(module), plan_(plan), model_(model), options_(options), limit_(options.work) {}

  // Returns an empty string if the statements are not the cause.
  std::string Explain() {
    compile::Plan bare = plan_;
    bare.params.clear();
    bare.inputs.clear();
    bare.modules.clear();
    if (!IsPossible(bare, options_.memory)) return "";
    compile::Plan left = plan_;
    Drop(left, left.params);
    Drop(left, left.inputs);
    Drop(left, left.modules);
    std::vector<std::string> lines;
    for (const compile::PlanParam& rule : left.params)
      lines.push_back(fmt::format("{}", rule.line));
    for (const compile::PlanInput& rule : left.inputs)
      lines.push_back(fmt::format("{}", rule.line));
    for (const compile::PlanModule& rule : left.modules)
      lines.push_back(fmt::format("{}", rule.line));
    bool limit = options_.memory && IsPossible(left, {});
    return fmt::format("{} {} of the plan{} conflict{}; without {} there is a plan",
                       lines.size() == 1 ? "line" : "lines", fmt::join(lines, ", "),
                       limit ? " and the limit of memory" : "",
                       lines.size() == 1 && !limit ? "s with the model" : "",
                       lines.size() == 1 && !limit ? "it" : "any of them");
  }

 private:
  bool IsPossible(const compile::Plan& plan, const std::optional<MemoryLimit>& memory) const {
    Result<AutoPlanner> planner = AutoPlanner::Make(module_, plan, model_, limit_);
    return planner.ok() && planner->Solve({.memory = memory}).ok();
  }

  template <typename Rule>
  void Drop(compile::Plan& plan, std::vector<Rule>& rules) const {
    for (size_t i = 0; i < rules.size() && !limit_.Spent();) {
      Rule rule = rules[i];
      rules.erase(rules.begin() + static_cast<ptrdiff_t>(i));
      if (!IsPossible(plan, options_.memory)) continue;
      rules.insert(rules.begin() + static_cast<ptrdiff_t>(i++), std::move(rule));
    }
  }

  const Module& module_;
  const compile::Plan& plan_;
  const price::CostModel& model_;
  const AutoOptions& options_;
  WorkLimit limit_;
};

}  // namespace

Result<compile::Plan> PlanOf(const Module& module, const compile::Plan& given,
                             const Decisions& decisions, const std::vector<uint32_t>& x) {
  return PlanWriter(module, given, decisions, x).Run();
}

struct AutoPlanner::State {
  const Module& module;
  const compile::Plan& plan;
  WorkLimit limit;
  Decisions decisions = {};
  std::optional<PlacementProblemBuilder> builder = {};
  // With full prices, and the last problem.
  PairwiseProblem full = {};
  PairwiseProblem asked = {};
  const PairwiseProblem* last = &full;
  // Messages and the answer of the first problem.
  Messages messages = {};
  std::vector<uint32_t> first_x = {};
  // Choices near the last answer at full prices, and its memory limit.
  ChoiceSets near = {};
  std::optional<MemoryLimit> near_memory = {};
};

AutoPlanner::AutoPlanner(std::unique_ptr<State> state) : state_(std::move(state)) {}
AutoPlanner::AutoPlanner(AutoPlanner&&) noexcept = default;
AutoPlanner::~AutoPlanner() = default;
const Decisions& AutoPlanner::decisions() const { return state_->decisions; }
const PairwiseProblem& AutoPlanner::problem() const { return state_->full; }
const PairwiseProblem& AutoPlanner::last_problem() const { return *state_->last; }

Result<AutoPlanner> AutoPlanner::Make(const Module& module, const compile::Plan& plan,
                                      const price::CostModel& model, const WorkLimit& limit) {
  HEDDLE_RETURN_IF_ERROR(CheckRequest(module, plan));
  std::unique_ptr<State> state(new State{module, plan, limit});
  const Graph& graph = module.graphs[0];
  HEDDLE_TRY(state->decisions, FindDecisions(graph, plan, state->limit));
  HEDDLE_TRY(PlacementProblemBuilder builder,
             PlacementProblemBuilder::Make(graph, plan, state->decisions, model, state->limit));
  state->builder.emplace(std::move(builder));
  HEDDLE_TRY(state->full, state->builder->Build({}));
  return AutoPlanner(std::move(state));
}

// For estimated shares, choices near the best answer at full prices are enough. Null: all choices.
const ChoiceSets* AutoPlanner::ChoicesFor(const Request& request) const {
  bool in_full = request.shares == price::MoveShares{};
  bool known = !state_->near.empty() && state_->near_memory == request.memory;
  return !in_full && known && request.demands.empty() ? &state_->near : nullptr;
}

Result<const PairwiseProblem*> AutoPlanner::ProblemFor(const Request& request) {
  if (request.shares == price::MoveShares{} && !request.memory && request.demands.empty())
    return state_->last = &state_->full;
  const ChoiceSets* choices = ChoicesFor(request);
  if (request.shares == price::MoveShares{}) {
    state_->asked = state_->full;
  } else {
    HEDDLE_TRY(state_->asked, state_->builder->Build(request.shares, choices));
  }
  if (request.memory) {
    PairwiseBudget memory = state_->builder->Memory(*request.memory);
    if (choices != nullptr) memory = KeepChoices(memory, *choices);
    state_->asked.budgets = {std::move(memory)};
  }
  state_->asked.restrictions = request.demands;
  return state_->last = &state_->asked;
}

PairwiseAnswer AutoPlanner::Answer(const Request& request, const PairwiseProblem& problem) {
  // Leaves work for later solves, and allows a minimum even if the limit is spent.
  WorkAmount least = WorkAmount::Work(kLeastSeconds);
  WorkLimit limit = state_->limit.Part(1.0 / 3, least.work);
  // Limited by the clock.
  if (limit.Spent()) limit = WorkLimit(least);
  SolveOptions options{.limit = limit, .messages = &state_->messages};
  if (!state_->first_x.empty()) options.starts = {state_->first_x};
  if (request.shares == price::MoveShares{}) {
    state_->near.clear();
    state_->near_memory = request.memory;
    if (request.demands.empty()) options.near = &state_->near;
    PairwiseAnswer answer = heddle::search::Solve(problem, options);
    if (state_->first_x.empty()) state_->first_x = answer.x;
    return answer;
  }
  options.gap = kOtherPricesGap;
  const ChoiceSets* choices = ChoicesFor(request);
  if (choices == nullptr) return heddle::search::Solve(problem, options);
  Messages messages = KeepChoices(state_->messages, *choices);
  options.messages = &messages;
  options.starts = {ToSubset(*choices, state_->first_x)};
  PairwiseAnswer answer = heddle::search::Solve(problem, options);
  for (size_t v = 0; v < answer.x.size(); ++v) answer.x[v] = (*choices)[v][answer.x[v]];
  return answer;
}

Result<AutoPlan> AutoPlanner::Solve(const Request& request) {
  HEDDLE_TRY(const PairwiseProblem* problem, ProblemFor(request));
  PairwiseAnswer answer = Answer(request, *problem);
  if (answer.outcome == SolveOutcome::kInfeasible)
    return Error(Diag::kInfeasible, "no plan does all that is asked for");
  if (answer.outcome == SolveOutcome::kNoAnswer)
    return Error(Diag::kNoAnswer,
                 "no plan was found within the limit; give it more with --time-limit");
  // A problem with shares may contain fewer choices.
  Tidy(request.shares == price::MoveShares{} ? *problem : state_->full, state_->decisions,
       answer.x);
  AutoPlan out;
  out.cost = {static_cast<int64_t>(Cost(state_->full, answer.x))};
  out.objective = {static_cast<int64_t>(answer.objective)};
  out.bound = {static_cast<int64_t>(std::floor(answer.bound))};
  out.shares = request.shares;
  out.size = SizeOf(*problem);
  out.counts = answer.counts;
  if (request.memory)
    out.memory = {static_cast<int64_t>(Amount(state_->builder->Memory(*request.memory), answer.x))};
  out.x = std::move(answer.x);
  return out;
}

Result<AutoPlan> AutoPlanner::Find(const Request& request) {
  HEDDLE_TRY(AutoPlan out, Solve(request));
  HEDDLE_TRY(out.plan, PlanOf(state_->module, state_->plan, state_->decisions, out.x));
  return out;
}

Failure AutoPlanner::WhyNot(const Request& request) {
  HEDDLE_TRY(const PairwiseProblem* problem, ProblemFor(request));
  // Sharing changes costs, but not feasibility.
  return Infeasible(WithoutSharing(*problem));
}

Result<AutoPlan> CompletePlan(const Module& module, const compile::Plan& plan,
                              const price::CostModel& model, const AutoOptions& options) {
  HEDDLE_TRY(AutoPlanner planner, AutoPlanner::Make(module, plan, model, WorkLimit(options.work)));
  AutoPlanner::Request request{.memory = options.memory};
  Result<AutoPlan> found = planner.Find(request);
  if (found.ok() || found.diagnostics()[0].kind != Diag::kInfeasible) return found;
  Failure failure = planner.WhyNot(request);
  std::string lines = StatementConflict(module, plan, model, options).Explain();
  if (!lines.empty()) failure.diagnostics[0].message += "; " + lines;
  return failure;
}

}  // namespace heddle::search
