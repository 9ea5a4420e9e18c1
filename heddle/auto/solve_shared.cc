#include "heddle/auto/solve_shared.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

namespace heddle {
namespace {

// Rounds at most; and how large the exact problem may be once rounds leave no fewer choices.
constexpr int kMostRounds = 24;
constexpr size_t kManyEntries = size_t{1} << 21;
constexpr double kNotably = 0.98;
constexpr int kStaleRounds = 3;
// What is near the best answer: what is dearer by such a part, or where the bound is far below it, within such a part of the gap. The first
// that leaves few enough choices.
constexpr double kNear[] = {0.5, 0.2, 0.1, 0.05, 0.02, 0.01};
constexpr uint32_t kNone = UINT32_MAX;
// How large problems are that are solved for an answer to begin with.
constexpr size_t kFuseEntries = size_t{1} << 18;
// Of the limit.
constexpr double kShareOfExact = 0.3;

// The assignment that takes the least of the only budget; nothing if none is possible.
std::vector<uint32_t> Thriftiest(PairwiseProblem problem, const Limit& limit) {
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
  return Solve(problem, {.limit = limit}).x;
}

// An assignment as the choices that are left are numbered; nothing if it has others.
std::vector<uint32_t> Among(const KeptOf& kept, std::vector<uint32_t> x) {
  for (size_t v = 0; v < x.size(); ++v) {
    auto at = std::ranges::lower_bound(kept[v], x[v]);
    if (at == kept[v].end() || *at != x[v]) return {};
    x[v] = static_cast<uint32_t>(at - kept[v].begin());
  }
  return x;
}

class SharedSolver {
 public:
  SharedSolver(const AutoProblem& problem, const Limit& limit, const SharedOptions& options)
      : problem_(problem), limit_(limit), options_(options), kept_(problem.own.variables.size()) {
    for (size_t v = 0; v < kept_.size(); ++v) {
      kept_[v].resize(problem.own.variables[VariableId(v)].cost.size());
      std::iota(kept_[v].begin(), kept_[v].end(), 0U);
      pool_.emplace_back(kept_[v].size());
    }
    for (const SharedMove& move : problem.shared) {
      for (const SharedReader& reader : move.readers)
        links_.emplace_back(move.from, reader.decision);
    }
    if (options.learnt != nullptr && !options.learnt->weights.empty()) {
      weights_ = options.learnt->weights;
      rounds_ = options.learnt->rounds;
      first_ = options.learnt_rounds;
      Offer(options.learnt->x);
    } else {
      for (const SharedMove& move : problem.shared) weights_.push_back(EqualWeights(move));
      // There is time for few rounds then, and smaller steps lead further.
      if (EntryCount(kept_) > options.near_entries) first_ = 1;
    }
  }

  const AutoProblem& now() const { return less_ ? *less_ : problem_; }

  SharedLearnt Learnt() const {
    SharedLearnt out{weights_, rounds_, best_};
    out.rounds.KeepAll();
    return out;
  }

  PairwiseAnswer Run() {
    if (now().shared.empty())
      return Solve(now().own, {.limit = limit_, .starts = Starts(now().own)});
    Offer(std::vector<uint32_t>(kept_.size()));
    int stale = 0;
    double gap = kForbidden;
    for (int round = first_; round < first_ + kMostRounds; ++round) {
      PairwiseProblem weighted = Weighted(now(), weights_);
      std::vector<double> prices;
      if (!weighted.budgets.empty()) {
        PairwiseAnswer answer =
            Solve(weighted, {.limit = limit_.Part(0.5), .starts = Starts(weighted)});
        if (answer.x.empty()) return answer;
        Count(answer.counts);
        Offer(answer.x);
        Pool(answer.x);
        bound_ = std::max(bound_, answer.bound);
        prices = std::move(answer.prices);
      }
      BoundRounds::Round bounded =
          rounds_.Run(std::move(weighted), best_cost_, limit_, std::move(prices), links_);
      bound_ = std::max(bound_, bounded.bound);
      counts_.sweeps += bounded.sweeps;
      for (const std::vector<uint32_t>& x : bounded.suggested) Pool(x);
      Fuse();
      if (best_.empty()) {
        PairwiseAnswer apart = SolveApart();
        if (best_.empty()) return apart;
      }
      if (!less_ && options_.near != nullptr) *options_.near = Near(bounded);
      KeptOf kept = bounded.KeptWithin(best_cost_);
      if (kept[0].empty() || bound_ >= best_cost_ - Tolerance()) return Proved();
      if (bound_ >= best_cost_ * (1 - options_.gap)) return Found();
      Charge(bounded, 1 / static_cast<double>(round + 1));
      bool closer = best_cost_ - bound_ < kNotably * gap;
      gap = best_cost_ - bound_;
      stale = Keep(kept) || closer ? 0 : stale + 1;
      size_t most = stale >= kStaleRounds ? kManyEntries : options_.few_entries;
      if (WithCopies::Fits(now(), most)) break;
      if (limit_.ShareLeft() < kShareOfExact) break;
    }
    WithCopies exact(now());
    // Loose bounds of many choices say nothing.
    if (exact.is_loose() && EntryCount(kept_) > options_.few_entries) return Found();
    return Finish(exact);
  }

 private:
  // --- Assignments

  // The best one; at first, what everybody begins with.
  std::vector<std::vector<uint32_t>> Starts(const PairwiseProblem& problem) const {
    if (!best_.empty()) return {InKept(best_)};
    std::vector<std::vector<uint32_t>> starts{std::vector<uint32_t>(kept_.size())};
    if (problem.budgets.size() == 1) {
      std::vector<uint32_t> thrifty = Thriftiest(problem, limit_);
      if (!thrifty.empty()) starts.push_back(std::move(thrifty));
    }
    return starts;
  }

  std::vector<uint32_t> InKept(const std::vector<uint32_t>& x) const { return Among(kept_, x); }

  // Whoever finds no answer otherwise: nothing is possible with shared tensors that is not without.
  PairwiseAnswer SolveApart() {
    PairwiseAnswer answer = Solve(Apart(now()), {.limit = limit_.Part(0.25)});
    Count(answer.counts);
    Offer(answer.x);
    return answer;
  }

  void Offer(const std::vector<uint32_t>& x) {
    if (x.empty()) return;
    double cost = Cost(now(), x);
    if (cost >= best_cost_) return;
    for (const PairwiseBudget& budget : now().own.budgets) {
      if (!Keeps(budget, Amount(budget, x))) return;
    }
    best_cost_ = cost;
    best_.resize(x.size());
    for (size_t v = 0; v < x.size(); ++v) best_[v] = kept_[v][x[v]];
  }

  // Notes choices that messages, or solvers of easier problems, find good.
  void Pool(const std::vector<uint32_t>& x) {
    for (size_t v = 0; v < x.size(); ++v) {
      uint32_t& mark = pool_[v][kept_[v][x[v]]];
      grown_ |= mark == 0;
      mark = 1;
    }
  }

  // The best answer that takes such choices only.
  void Fuse() {
    if (!std::exchange(grown_, false)) return;
    KeptOf pooled(kept_.size());
    for (size_t v = 0; v < kept_.size(); ++v) {
      for (uint32_t k = 0; k < kept_[v].size(); ++k) {
        uint32_t name = kept_[v][k];
        if (pool_[v][name] != 0 || (!best_.empty() && best_[v] == name)) pooled[v].push_back(k);
      }
    }
    AutoProblem few = KeepChoices(now(), pooled);
    if (!WithCopies::Fits(few, kFuseEntries)) return;
    WithCopies exact(few);
    PairwiseAnswer answer = Solve(exact.problem(), {.limit = limit_.Part(0.25)});
    Count(answer.counts);
    if (answer.x.empty()) return;
    answer.x.resize(kept_.size());
    for (size_t v = 0; v < kept_.size(); ++v) answer.x[v] = pooled[v][answer.x[v]];
    Offer(answer.x);
  }

  // --- Rounds

  // Whoever wants a placement pays for it with those who want it, too: so far as `step` says. That is so for every place where the tensor may
  // lie, with what readers find best then.
  void Charge(const BoundRounds::Round& bounded, double step) {
    size_t link = 0;
    for (size_t m = 0; m < now().shared.size(); ++m) {
      const SharedMove& move = now().shared[m];
      std::span<const std::vector<uint32_t>> best_with(&bounded.best_with[link],
                                                       move.readers.size());
      link += move.readers.size();
      const std::vector<double>& at_least = bounded.at_least[move.from];
      std::vector<uint32_t> cheapest(move.prices.size(), kNone);
      for (uint32_t c = 0; c < move.lies.size(); ++c) {
        uint32_t& best = cheapest[move.lies[c]];
        if (at_least[c] != kForbidden && (best == kNone || at_least[c] < at_least[best])) best = c;
      }
      for (uint32_t lies = 0; lies < cheapest.size(); ++lies) {
        if (cheapest[lies] != kNone)
          ChargeReaders(move, best_with, cheapest[lies], step, weights_[m][lies]);
      }
    }
  }
  static void ChargeReaders(const SharedMove& move,
                            std::span<const std::vector<uint32_t>> best_with, uint32_t from,
                            double step, std::vector<std::vector<double>>& weights) {
    auto wants = [&](size_t r) -> const std::vector<uint32_t>& {
      return move.readers[r].wants[best_with[r][from]];
    };
    std::vector<double> wanted_by(move.prices[0].size());
    for (size_t r = 0; r < move.readers.size(); ++r) {
      for (uint32_t to : wants(r)) wanted_by[to] += 1;
    }
    for (size_t r = 0; r < move.readers.size(); ++r) {
      for (uint32_t to = 0; to < wanted_by.size(); ++to) {
        if (wanted_by[to] > 0) weights[r][to] *= 1 - step;
      }
      for (uint32_t to : wants(r)) weights[r][to] += step / wanted_by[to];
    }
  }

  KeptOf Near(const BoundRounds::Round& bounded) const {
    KeptOf near = kept_;
    auto keep = [&](double cutoff) {
      if (EntryCount(near) > options_.near_entries) near = bounded.KeptWithin(cutoff);
    };
    for (double part : kNear) keep(best_cost_ + part * best_cost_);
    for (double part : kNear) keep(bounded.bound + part * (best_cost_ - bounded.bound));
    for (size_t v = 0; v < near.size(); ++v) {
      auto at = std::ranges::lower_bound(near[v], best_[v]);
      if (at == near[v].end() || *at != best_[v]) near[v].insert(at, best_[v]);
    }
    return near;
  }

  size_t EntryCount(const KeptOf& kept) const {
    size_t count = 0;
    for (const PairwiseEdge& edge : problem_.own.edges)
      count += kept[edge.u.index()].size() * kept[edge.v.index()].size();
    for (auto [from, to] : links_) count += kept[from].size() * kept[to].size();
    return count;
  }

  size_t ChoiceCount() const {
    size_t count = 0;
    for (const std::vector<uint32_t>& kept : kept_) count += kept.size();
    return count;
  }

  // Whether that leaves notably fewer.
  bool Keep(const KeptOf& kept) {
    less_ = KeepChoices(now(), kept);
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

  PairwiseAnswer Found() const {
    PairwiseAnswer answer = Proved();
    answer.outcome = SolveOutcome::kStopped;
    answer.bound = bound_;
    return answer;
  }

  PairwiseAnswer Finish(const WithCopies& exact) {
    std::vector<uint32_t> start = exact.Extended(InKept(best_));
    PairwiseAnswer answer = Solve(exact.problem(), {.limit = limit_, .starts = {std::move(start)}});
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

  const AutoProblem& problem_;
  // What is left of it, once choices have gone.
  std::optional<AutoProblem> less_;
  Limit limit_;
  const SharedOptions& options_;
  // The round to begin with: the first ones learn in large steps.
  int first_ = 0;
  // By variable: what the choices that are left were called.
  KeptOf kept_;
  BoundRounds rounds_;
  // From where each shared tensor lies to all who read it.
  std::vector<BoundRounds::Link> links_;
  // By variable and choice, as it was called at first: not 0 for what is worth a try; and whether there is more of that since the last.
  std::vector<std::vector<uint32_t>> pool_;
  bool grown_ = false;
  std::vector<ShareWeights> weights_;
  std::vector<uint32_t> best_;
  double best_cost_ = kForbidden;
  // Of what is left; what has gone is dearer than the best.
  double bound_ = -kForbidden;
  SearchCounts counts_;
};

}  // namespace

SharedLearnt KeepChoices(SharedLearnt learnt, const KeptOf& kept) {
  learnt.rounds.Keep(kept);
  learnt.x = Among(kept, std::move(learnt.x));
  return learnt;
}

PairwiseAnswer SolveShared(const AutoProblem& problem, const Limit& limit,
                           const SharedOptions& options) {
  SharedSolver solver(problem, limit, options);
  PairwiseAnswer answer = solver.Run();
  if (options.learnt != nullptr && options.learnt->weights.empty())
    *options.learnt = solver.Learnt();
  return answer;
}

}  // namespace heddle
