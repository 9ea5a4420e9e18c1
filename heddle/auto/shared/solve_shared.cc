#include "heddle/auto/shared/solve_shared.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "heddle/auto/shared/budget_price.h"

namespace heddle {
namespace {

// Runs at most; and from how many to how many what they suggest is looked at, and what is near the bound.
constexpr int kMostRuns = 400;
constexpr int kOften = 4;
constexpr int kDives = 8;
// How large the exact problem may be once runs lead no further: when a bound rises by less of what it is short of the best answer, which
// says little about it where it is farther away than that.
constexpr size_t kManyEntries = size_t{1} << 21;
constexpr double kLittle = 0.005;
constexpr double kFar = 0.01;
// Choices go when no more entries are left than such a part.
constexpr double kNotably = 0.8;
// How large problems are that are solved for an answer to begin with; by messages, if the whole is large after many runs.
constexpr size_t kFuseEntries = size_t{1} << 16;
constexpr size_t kNearEntries = size_t{1} << 17;
constexpr int kManyRuns = 64;
constexpr size_t kLargeEntries = size_t{1} << 21;
constexpr double kGapOfPart = 0.001;
// Of the limit: what is left for the exact problem, and what one with few choices may take.
constexpr double kShareOfExact = 0.3;
constexpr double kShareOfFew = 0.03;

// The assignment that takes the least of the budget; nothing if none is possible.
std::vector<uint32_t> Thriftiest(const AutoProblem& problem, const Limit& limit) {
  auto clear = [](std::vector<double>& costs) {
    for (double& cost : costs) cost = cost == kForbidden ? kForbidden : 0;
  };
  PairwiseProblem thrifty = Apart(problem);
  for (PairwiseVariable& variable : thrifty.variables) clear(variable.cost);
  for (std::vector<double>& matrix : thrifty.matrices) clear(matrix);
  for (const BudgetTerm& term : thrifty.budgets[0].terms) {
    std::vector<double>& cost = thrifty.variables[term.variable].cost;
    for (size_t k = 0; k < cost.size(); ++k) cost[k] += term.amount[k];
  }
  thrifty.budgets.clear();
  return Solve(thrifty, {.limit = limit}).x;
}

class SharedSolver {
 public:
  // `is_part`: of a problem that another one solves.
  SharedSolver(const AutoProblem& problem, const Limit& limit, const SharedOptions& options,
               bool is_part = false)
      : problem_(problem),
        limit_(limit),
        options_(options),
        is_part_(is_part),
        kept_(Allowed(problem.own)) {
    for (const PairwiseVariable& variable : problem.own.variables) {
      pool_.emplace_back(variable.cost.size());
      at_least_.emplace_back(variable.cost.size(), kForbidden);
    }
    if (!problem.own.restrictions.empty()) less_ = KeepChoices(problem, kept_);
    if (!problem.own.budgets.empty()) price_.emplace(problem.own.budgets[0]);
  }

  PairwiseAnswer Run() {
    if (std::ranges::any_of(kept_, &std::vector<uint32_t>::empty)) return Impossible();
    MakeSweeps(options_.learnt == nullptr ? SharedMessages()
                                          : KeepChoices(options_.learnt->messages, kept_));
    Offer(std::vector<uint32_t>(kept_.size()));
    if (options_.learnt != nullptr) Offer(InKept(options_.learnt->x));
    if (best_.empty() && price_) Offer(Thriftiest(now(), limit_.Part(0.25)));
    if (std::optional<PairwiseAnswer> answer = Sweep()) return *std::move(answer);
    size_t most = is_part_ ? options_.few_entries : kManyEntries;
    return WithCopies::Fits(now(), most) ? Finish(WithCopies(now())) : Found();
  }

  SharedLearnt Learnt() {
    Note();
    return {std::move(messages_), best_};
  }

  KeptOf Near() {
    Note();
    KeptOf near = Allowed(problem_.own);
    auto keep = [&](double cutoff) {
      if (EntryCount(near) <= options_.near_entries) return;
      KeptOf less = Within(at_least_, cutoff);
      if (!less.empty()) near = std::move(less);
    };
    for (double part = 0.5; part > 1e-4; part /= 1.5) keep(bound_ + part * best_cost_);
    for (size_t v = 0; v < near.size(); ++v) {
      auto at = std::ranges::lower_bound(near[v], best_[v]);
      if (at == near[v].end() || *at != best_[v]) near[v].insert(at, best_[v]);
    }
    return near;
  }

 private:
  const AutoProblem& now() const { return less_ ? *less_ : problem_; }

  // --- Assignments

  std::vector<uint32_t> InKept(const std::vector<uint32_t>& x) const { return Among(kept_, x); }

  // Whoever finds no answer otherwise: nothing is possible with shared tensors that is not without.
  PairwiseAnswer SolveApart() {
    PairwiseAnswer answer = Solve(Apart(now()), {.limit = limit_.Part(0.25)});
    Count(answer.counts);
    Offer(answer.x);
    // Every assignment is cheaper if tensors are shared.
    if (answer.outcome != SolveOutcome::kInfeasible) answer.bound = bound_;
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

  // Notes choices that messages find good.
  void Pool(const std::vector<uint32_t>& x) {
    for (size_t v = 0; v < x.size(); ++v) {
      uint32_t& mark = pool_[v][kept_[v][x[v]]];
      grown_ |= mark == 0;
      mark = 1;
    }
  }

  // The best answer among what messages found good.
  void Fuse() {
    if (!std::exchange(grown_, false)) return;
    KeptOf pooled(kept_.size());
    for (size_t v = 0; v < kept_.size(); ++v) {
      for (uint32_t k = 0; k < kept_[v].size(); ++k) {
        uint32_t name = kept_[v][k];
        if (pool_[v][name] != 0 || (!best_.empty() && best_[v] == name)) pooled[v].push_back(k);
      }
    }
    SolveAmong(pooled);
  }

  // The best answer among the choices that are nearest to the bound, as many as make a small problem. Whether it is better.
  bool Dive(bool sweeps) {
    double before = best_cost_;
    std::vector<std::vector<double>> at_least = sweeps_->AtLeast();
    for (double part = 0.3; part > 1e-4; part /= 3) {
      KeptOf near = Within(at_least, bound_ + part * (best_cost_ - bound_));
      if (near.empty() || SolveAmong(near)) break;
      if (sweeps && EntryCount(near) <= kNearEntries) {
        SweepAmong(near);
        break;
      }
    }
    return best_cost_ < before;
  }

  // The best answer that takes such choices only. False if they are too many.
  bool SolveAmong(const KeptOf& choices) {
    AutoProblem few = KeepChoices(now(), choices);
    if (!WithCopies::Fits(few, kFuseEntries)) return false;
    WithCopies exact(few);
    PairwiseAnswer answer = Solve(exact.problem(), {.limit = limit_.Part(kShareOfFew)});
    Count(answer.counts);
    if (answer.x.empty()) return true;
    answer.x.resize(kept_.size());
    for (size_t v = 0; v < kept_.size(); ++v) answer.x[v] = choices[v][answer.x[v]];
    Offer(answer.x);
    return true;
  }

  // The same by messages, where the exact problem is too large.
  void SweepAmong(const KeptOf& choices) {
    AutoProblem few = KeepChoices(now(), choices);
    SharedLearnt learnt{KeepChoices(sweeps_->Messages(), choices), {}};
    SharedOptions options{.learnt = &learnt, .gap = kGapOfPart};
    PairwiseAnswer answer = SharedSolver(few, limit_.Part(kShareOfFew), options, true).Run();
    Count(answer.counts);
    for (size_t v = 0; v < answer.x.size(); ++v) answer.x[v] = choices[v][answer.x[v]];
    Offer(answer.x);
  }

  // --- Messages

  void MakeSweeps(const SharedMessages& known) {
    sweeps_.emplace(now(), known);
    if (price_) sweeps_->SetPrice(price_->now());
    runs_ = 0;
  }

  // Until there is an answer, or the exact problem is what is left to try.
  std::optional<PairwiseAnswer> Sweep() {
    double last = -kForbidden;
    for (int run = 1; run <= kMostRuns; ++run) {
      bool looks = run % kOften == 0;
      double bound = sweeps_->Run(looks);
      bound_ = std::max(bound_, bound);
      limit_.Spend(sweeps_->TakeWork());
      ++counts_.sweeps;
      ++runs_;
      if (!looks && !limit_.Spent()) continue;
      if (std::optional<PairwiseAnswer> answer = Look()) return answer;
      if (WithCopies::Fits(now(), options_.few_entries)) return {};
      if (limit_.ShareLeft() < kShareOfExact) return {};
      double missing = std::min(best_cost_ - bound_, kFar * std::abs(bound_));
      bool closer = bound - std::exchange(last, bound) > kLittle * missing;
      // With fewer choices than a moment ago it goes on, too.
      if (runs_ == 0) continue;
      bool dives = !closer || run % kDives == 0;
      bool sweeps = run >= kManyRuns && EntryCount(kept_) > kLargeEntries;
      if ((dives && Dive(sweeps)) || closer) continue;
      if (!SetNextPrice()) return {};
      last = -kForbidden;
    }
    return {};
  }

  // What messages suggest, and which choices they leave.
  std::optional<PairwiseAnswer> Look() {
    const std::vector<uint32_t>& x = sweeps_->suggested();
    if (sweeps_->bound() != kForbidden && !x.empty() && Cost(now(), x) != kForbidden) {
      Offer(x);
      Pool(x);
      Fuse();
    }
    if (best_.empty()) {
      PairwiseAnswer apart = SolveApart();
      if (best_.empty()) return apart;
    }
    if (bound_ >= best_cost_ - Tolerance()) return Proved();
    if (bound_ >= best_cost_ * (1 - options_.gap)) return Found();
    if (runs_ < 2) return {};
    KeptOf kept = Within(sweeps_->AtLeast(), best_cost_);
    if (kept.empty()) return Proved();
    Keep(kept);
    return {};
  }

  size_t EntryCount(const KeptOf& kept) const {
    size_t count = 0;
    for (const SharedMove& move : problem_.moves) {
      for (const SharedReader& reader : move.readers)
        count += kept[move.from].size() * kept[reader.decision()].size();
    }
    return count;
  }

  // Writes down what is known of the choices that are left, under their first names.
  void Note() {
    if (!sweeps_) return;
    // Of all choices, or none: what some say is no use with what others have said before.
    if (!less_) messages_ = sweeps_->Messages();
    if (runs_ < 2) return;
    std::vector<std::vector<double>> at_least = sweeps_->AtLeast();
    for (size_t v = 0; v < kept_.size(); ++v) {
      for (size_t k = 0; k < kept_[v].size(); ++k) at_least_[v][kept_[v][k]] = at_least[v][k];
    }
  }

  // If that leaves notably fewer.
  void Keep(const KeptOf& kept) {
    KeptOf left = kept_;
    for (size_t v = 0; v < left.size(); ++v) left[v] = Only(kept_[v], kept[v]);
    if (static_cast<double>(EntryCount(left)) > kNotably * static_cast<double>(EntryCount(kept_)))
      return;
    Note();
    SharedMessages messages = KeepChoices(sweeps_->Messages(), kept);
    sweeps_.reset();
    less_ = KeepChoices(now(), kept);
    kept_ = std::move(left);
    MakeSweeps(messages);
  }

  bool SetNextPrice() {
    if (!price_ ||
        !price_->Step(sweeps_->bound(), LineOf(sweeps_->suggested()), LineOf(InKept(best_))))
      return false;
    sweeps_->SetPrice(price_->now());
    runs_ = 0;
    return true;
  }
  PriceLine LineOf(const std::vector<uint32_t>& x) const {
    return {Cost(now(), x), Amount(now().own.budgets[0], x), x};
  }

  void Count(const SearchCounts& counts) {
    if (counts_.left.variables == 0) counts_ = {counts.reduced, counts.left, counts_.sweeps};
    counts_.sweeps += counts.sweeps;
    counts_.joins += counts.joins;
    counts_.branches += counts.branches;
  }

  // --- Answers

  double Tolerance() const { return 1e-9 * std::abs(best_cost_); }

  static PairwiseAnswer Impossible() {
    PairwiseAnswer answer;
    answer.outcome = SolveOutcome::kInfeasible;
    answer.bound = kForbidden;
    return answer;
  }

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
  bool is_part_;
  // By variable: what the choices that are left were called.
  KeptOf kept_;
  // Of what is left, and how often they have run with these choices and this price.
  std::optional<SharedSweeps> sweeps_;
  int runs_ = 0;
  // Of all choices: what was said when all were there, and what an assignment with each costs at least.
  SharedMessages messages_;
  std::vector<std::vector<double>> at_least_;
  // By variable and choice, as it was called at first: not 0 for what is worth a try; and whether there is more of that since the last.
  std::vector<std::vector<uint32_t>> pool_;
  bool grown_ = false;
  std::vector<uint32_t> best_;
  double best_cost_ = kForbidden;
  // Of what is left; what has gone is dearer than the best.
  double bound_ = -kForbidden;
  // Of the budget, if there is one.
  std::optional<BudgetPrice> price_;
  SearchCounts counts_;
};

}  // namespace

SharedLearnt KeepChoices(SharedLearnt learnt, const KeptOf& kept) {
  return {KeepChoices(std::move(learnt.messages), kept), Among(kept, std::move(learnt.x))};
}

PairwiseAnswer SolveShared(const AutoProblem& problem, const Limit& limit,
                           const SharedOptions& options) {
  SharedSolver solver(problem, limit, options);
  PairwiseAnswer answer = solver.Run();
  if (options.near != nullptr && !answer.x.empty()) *options.near = solver.Near();
  if (options.learnt != nullptr && options.learnt->messages.empty())
    *options.learnt = solver.Learnt();
  return answer;
}

}  // namespace heddle
