#include "heddle/auto/solve_shared.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace heddle {
namespace {

// Rounds at most; and how large the exact problem may be once rounds leave no fewer choices.
constexpr int kMostRounds = 24;
constexpr int kLearntRounds = 6;
constexpr size_t kManyEntries = size_t{1} << 21;
// With more, time may be up before rounds find anything good.
constexpr size_t kManyChoices = 16'384;
constexpr double kNotably = 0.98;
constexpr int kStaleRounds = 3;
// Guesses: how much more than the bound, at most and at least, as a part of it; how many; and how large problems are that are solved for one.
constexpr double kGuess = 0.006;
constexpr double kLeastGuess = kGuess / 10;
constexpr int kMostProbes = 3;
constexpr size_t kProbeEntries = size_t{1} << 18;
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
    if (options.learnt != nullptr && !options.learnt->weights.empty()) {
      weights_ = options.learnt->weights;
      rounds_ = options.learnt->rounds;
      first_ = kLearntRounds;
      Offer(options.learnt->x);
    } else {
      for (const SharedMove& move : problem.shared) weights_.push_back(EqualWeights(move));
    }
  }

  SharedLearnt Learnt() const {
    SharedLearnt out{weights_, rounds_, best_};
    out.rounds.KeepAll();
    return out;
  }

  PairwiseAnswer Run() {
    if (less_.shared.empty())
      return Solve(less_.own, {.time_limit = deadline_.Left(), .starts = Starts(less_.own)});
    Offer(std::vector<uint32_t>(kept_.size()));
    int stale = 0;
    double gap = kForbidden;
    for (int round = first_; round < first_ + kMostRounds; ++round) {
      PairwiseProblem weighted = Weighted(less_, weights_);
      std::vector<double> prices;
      std::vector<uint32_t> x;
      if (!weighted.budgets.empty()) {
        PairwiseAnswer answer =
            Solve(weighted, {.time_limit = deadline_.Left() / 2, .starts = Starts(weighted)});
        if (answer.x.empty()) return answer;
        Count(answer.counts);
        Offer(answer.x);
        bound_ = std::max(bound_, answer.bound);
        prices = std::move(answer.prices);
        x = std::move(answer.x);
      }
      BoundRounds::Round bounded = rounds_.Run(weighted, best_cost_, std::move(prices));
      bound_ = std::max(bound_, bounded.bound);
      counts_.sweeps += bounded.sweeps;
      Offer(bounded.x);
      if (x.empty()) x = std::move(bounded.x);
      if (best_.empty() || (round == first_ && ChoiceCount() > kManyChoices)) {
        tried_apart_ = true;
        PairwiseAnswer apart = TryApart();
        if (best_.empty()) return apart;
      }
      if (stale > 0) Probe(bounded);
      KeptOf kept = bounded.KeptWithin(best_cost_);
      if (kept[0].empty() || bound_ >= best_cost_ - Tolerance()) return Proved();
      if (!x.empty()) Charge(x, 1 / static_cast<double>(round + 1));
      bool closer = best_cost_ - bound_ < kNotably * gap;
      gap = best_cost_ - bound_;
      stale = Keep(kept) || closer ? 0 : stale + 1;
      if (stale == kStaleRounds && !std::exchange(tried_apart_, true)) {
        TryApart();
        stale = 0;
      }
      size_t most = stale >= kStaleRounds ? kManyEntries : options_.few_entries;
      if (WithCopies::Fits(less_, most)) break;
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
  PairwiseAnswer TryApart() {
    SolveOptions options{.time_limit = deadline_.Left() / 4};
    if (!best_.empty()) options.starts = {InKept(best_)};
    PairwiseAnswer answer = Solve(Apart(less_), options);
    Count(answer.counts);
    Offer(answer.x);
    return answer;
  }

  static std::vector<double> WantedIn(const SharedMove& move, const std::vector<uint32_t>& x) {
    std::vector<double> wanted_by(move.prices[0].size());
    for (const SharedReader& reader : move.readers) {
      for (uint32_t to : reader.wants[x[reader.decision]]) wanted_by[to] += 1;
    }
    return wanted_by;
  }

  void Offer(const std::vector<uint32_t>& x) {
    if (x.empty()) return;
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

  // Mostly the bound is close to the answer, and what is known is not. So what may cost a little more than the bound is solved: if that has an
  // answer as cheap as guessed, no other is cheaper; and else its answer is still a good one.
  void Probe(const BoundRounds::Round& bounded) {
    if (probes_ == kMostProbes) return;
    for (double more = kGuess; more >= kLeastGuess; more /= 2) {
      double guess = bounded.bound + more * std::abs(bounded.bound);
      if (guess >= best_cost_) continue;
      KeptOf kept = bounded.KeptWithin(guess);
      if (kept[0].empty()) return;
      AutoProblem few = KeepChoices(less_, kept);
      if (!WithCopies::Fits(few, kProbeEntries)) continue;
      PairwiseAnswer answer =
          Solve(WithCopies(few).problem(), {.time_limit = deadline_.Left() / 4});
      Count(answer.counts);
      if (!answer.x.empty()) {
        answer.x.resize(kept_.size());
        for (size_t v = 0; v < kept_.size(); ++v) answer.x[v] = kept[v][answer.x[v]];
        Offer(answer.x);
      }
      if (answer.proved() || answer.outcome == SolveOutcome::kInfeasible)
        bound_ = std::max(bound_, std::min(guess, best_cost_));
      ++probes_;
      return;
    }
  }

  // Whoever wants a placement pays for it with those who want it, too: so far as `step` says.
  void Charge(const std::vector<uint32_t>& x, double step) {
    for (size_t m = 0; m < less_.shared.size(); ++m) {
      const SharedMove& move = less_.shared[m];
      std::vector<double> wanted_by = WantedIn(move, x);
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

  size_t ChoiceCount() const {
    size_t count = 0;
    for (const std::vector<uint32_t>& kept : kept_) count += kept.size();
    return count;
  }

  // Whether that leaves notably fewer.
  bool Keep(const KeptOf& kept) {
    less_ = KeepChoices(less_, kept);
    rounds_.Keep(kept);
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

  double Tolerance() const { return 1e-9 * std::abs(best_cost_); }

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
  BoundRounds rounds_;
  int probes_ = 0;
  bool tried_apart_ = false;
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
  if (options.learnt != nullptr && options.learnt->weights.empty())
    *options.learnt = solver.Learnt();
  return answer;
}

}  // namespace heddle
