#include "heddle/auto/solve_shared.h"

#include <algorithm>
#include <numeric>

namespace heddle {
namespace {

// Rounds at most; and how large the exact problem may be once rounds leave no fewer choices.
constexpr int kMostRounds = 24;
constexpr int kLearntRounds = 6;
constexpr size_t kManyEntries = size_t{1} << 21;
constexpr double kNotably = 0.98;
// Of the time that there is.
constexpr double kShareOfExact = 0.3;

// The assignment that takes the least of the only budget; nothing if none is possible.
std::vector<uint32_t> Thriftiest(PairwiseProblem problem, double time_limit) {
  auto clear = [](std::vector<double>& costs) {
    for (double& cost : costs) cost = cost == kForbidden ? kForbidden : 0;
  };
  for (PairwiseVariable& variable : problem.variables) clear(variable.cost);
  for (std::vector<double>& matrix : problem.matrices) clear(matrix);
  for (const BudgetTerm& term : problem.budgets[0].terms) {
    std::vector<double>& cost = problem.variables[term.variable].cost;
    for (size_t k = 0; k < cost.size(); ++k) cost[k] += term.amount[k];
  }
  problem.budgets.clear();
  return Solve(problem, {.time_limit = time_limit}).x;
}

class SharedSolver {
 public:
  SharedSolver(const AutoProblem& problem, const Deadline& deadline, const SharedOptions& options)
      : less_(problem),
        deadline_(deadline),
        options_(options),
        time_(deadline.Left()),
        kept_(problem.own.variables.size()) {
    for (size_t v = 0; v < kept_.size(); ++v) {
      kept_[v].resize(problem.own.variables[VariableId(v)].cost.size());
      std::iota(kept_[v].begin(), kept_[v].end(), 0U);
    }
    if (options.learnt != nullptr && !options.learnt->empty()) {
      weights_ = *options.learnt;
      first_ = kLearntRounds;
    } else {
      for (const SharedMove& move : problem.shared) weights_.push_back(EqualWeights(move));
    }
  }

  const std::vector<ShareWeights>& weights() const { return weights_; }

  PairwiseAnswer Run() {
    for (int round = first_; round < first_ + kMostRounds; ++round) {
      PairwiseProblem weighted = Weighted(less_, weights_);
      double limit = less_.shared.empty() ? deadline_.Left() : deadline_.Left() / 2;
      PairwiseAnswer answer = Solve(weighted, {.time_limit = limit, .starts = Starts(weighted)});
      if (less_.shared.empty() || answer.x.empty()) return answer;
      Count(answer.counts);
      Offer(answer.x);
      if (round == 0) TryApart();
      bound_ = std::max(bound_, answer.bound);
      if (bound_ >= best_cost_ - answer.tolerance) return Proved();
      Charge(answer.x, 1 / static_cast<double>(round + 1));
      WorthwhileChoices worth = FindWorthwhile(weighted, best_cost_, std::move(answer.prices));
      bound_ = std::max(bound_, worth.bound);
      if (worth.kept[0].empty()) return Proved();
      bool rests = !Keep(worth.kept);
      WithCopies exact(less_, rests ? kManyEntries : options_.few_entries);
      if (!exact.is_loose()) return Finish(exact);
      if (deadline_.Left() < time_ * kShareOfExact) break;
    }
    return Finish(WithCopies(less_));
  }

 private:
  // --- Assignments

  // The best one; at first, what everybody begins with.
  std::vector<std::vector<uint32_t>> Starts(const PairwiseProblem& problem) const {
    if (!best_.empty()) return {InKept(best_)};
    std::vector<std::vector<uint32_t>> starts{std::vector<uint32_t>(kept_.size())};
    if (problem.budgets.size() == 1) {
      std::vector<uint32_t> thrifty = Thriftiest(problem, deadline_.Left());
      if (!thrifty.empty()) starts.push_back(std::move(thrifty));
    }
    return starts;
  }

  std::vector<uint32_t> InKept(std::vector<uint32_t> x) const {
    for (size_t v = 0; v < x.size(); ++v) {
      auto at = std::ranges::lower_bound(kept_[v], x[v]);
      x[v] = static_cast<uint32_t>(at - kept_[v].begin());
    }
    return x;
  }

  // Where nothing is shared that could be, this is the answer; else it is a good one to begin with.
  void TryApart() {
    PairwiseAnswer answer =
        Solve(Apart(less_), {.time_limit = deadline_.Left() / 4, .starts = {InKept(best_)}});
    Count(answer.counts);
    Offer(answer.x);
  }

  void Offer(const std::vector<uint32_t>& x) {
    double cost = Cost(less_, x);
    if (cost >= best_cost_) return;
    for (const PairwiseBudget& budget : less_.own.budgets) {
      if (!Keeps(budget, Amount(budget, x))) return;
    }
    best_cost_ = cost;
    best_.resize(x.size());
    for (size_t v = 0; v < x.size(); ++v) best_[v] = kept_[v][x[v]];
  }

  // --- Rounds

  // Whoever wants a placement pays for it with those who want it, too: so far as `step` says.
  void Charge(const std::vector<uint32_t>& x, double step) {
    for (size_t m = 0; m < less_.shared.size(); ++m) {
      const SharedMove& move = less_.shared[m];
      std::vector<double> wanted_by(move.prices[0].size());
      for (const SharedReader& reader : move.readers) {
        for (uint32_t to : reader.wants[x[reader.decision]]) wanted_by[to] += 1;
      }
      for (size_t r = 0; r < move.readers.size(); ++r) {
        const std::vector<uint32_t>& wants = move.readers[r].wants[x[move.readers[r].decision]];
        for (uint32_t to = 0; to < wanted_by.size(); ++to) {
          if (wanted_by[to] == 0) continue;
          bool pays = std::ranges::find(wants, to) != wants.end();
          double& weight = weights_[m][r][to];
          weight += step * ((pays ? 1 / wanted_by[to] : 0) - weight);
        }
      }
    }
  }

  // Whether that leaves notably fewer.
  bool Keep(const KeptOf& kept) {
    less_ = KeepChoices(less_, kept);
    size_t before = 0;
    size_t after = 0;
    for (size_t v = 0; v < kept_.size(); ++v) {
      std::vector<uint32_t> left;
      for (uint32_t k : kept[v]) left.push_back(kept_[v][k]);
      before += kept_[v].size();
      after += left.size();
      kept_[v] = std::move(left);
    }
    return static_cast<double>(after) < kNotably * static_cast<double>(before);
  }

  void Count(const SearchCounts& counts) {
    if (counts_.left.variables == 0) counts_ = {counts.reduced, counts.left};
    counts_.sweeps += counts.sweeps;
    counts_.joins += counts.joins;
    counts_.branches += counts.branches;
  }

  // --- Answers

  PairwiseAnswer Proved() const {
    PairwiseAnswer answer;
    answer.outcome = SolveOutcome::kProved;
    answer.x = best_;
    answer.objective = answer.bound = best_cost_;
    answer.counts = counts_;
    return answer;
  }

  PairwiseAnswer Finish(const WithCopies& exact) {
    std::vector<uint32_t> start = exact.Extended(InKept(best_));
    PairwiseAnswer answer =
        Solve(exact.problem(), {.time_limit = deadline_.Left(), .starts = {std::move(start)}});
    Count(answer.counts);
    answer.x.resize(kept_.size());
    Offer(answer.x);
    if (answer.proved() || bound_ >= best_cost_ - answer.tolerance) return Proved();
    answer.x = best_;
    answer.objective = best_cost_;
    answer.bound = std::max(answer.bound, bound_);
    answer.counts = counts_;
    return answer;
  }

  AutoProblem less_;
  const Deadline& deadline_;
  const SharedOptions& options_;
  double time_;
  // The round to begin with: the first ones learn in large steps.
  int first_ = 0;
  // By variable: what the choices that are left were called.
  KeptOf kept_;
  std::vector<ShareWeights> weights_;
  std::vector<uint32_t> best_;
  double best_cost_ = kForbidden;
  // Of what is left; what has gone is dearer than the best.
  double bound_ = -kForbidden;
  SearchCounts counts_;
};

}  // namespace

PairwiseAnswer SolveShared(const AutoProblem& problem, const Deadline& deadline,
                           const SharedOptions& options) {
  SharedSolver solver(problem, deadline, options);
  PairwiseAnswer answer = solver.Run();
  if (options.learnt != nullptr && options.learnt->empty()) *options.learnt = solver.weights();
  return answer;
}

}  // namespace heddle
