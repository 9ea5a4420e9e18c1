// Search in problems with shared moves (decision 15).
//
// Sweeps bound the problem with moves and suggest assignments. Suggested choices, and choices near
// the bound, define small problems whose solutions are usually optimal. Choices that are too
// expensive are removed. When few are left, moves become variables and edges.
#include <algorithm>

#include "heddle/search/solve/engine/engine.h"

namespace heddle::search {
namespace {

constexpr int kMostRuns = 400;
constexpr int kRunsBeforePrices = 8;
// Maximum matrix entries of copies, for an attempt when sweeps no longer help.
constexpr size_t kManyEntries = size_t{1} << 21;
// Maximum matrix entries of the copies of a small problem, and pairs of one that sweeps solve.
constexpr size_t kSmallEntries = size_t{1} << 16;
constexpr size_t kSmallPairs = size_t{1} << 17;
// Number of runs between two dives.
constexpr int kDives = 16;
// Removes choices if at most this share of pairs is left.
constexpr double kWorthRemoving = 0.8;
// Shares of the limit: for pairs, for one small problem, and for finding any answer.
constexpr double kShareOfPairs = 0.3;
constexpr double kShareOfSmall = 0.03;
constexpr double kShareOfAny = 0.25;

template <typename SizeOf>
size_t CountPairs(const std::vector<SharedMove>& moves, SizeOf size_of) {
  size_t count = 0;
  for (const SharedMove& move : moves) {
    for (const SharedReader& reader : move.readers)
      count += size_of(move.from) * size_of(reader.variable());
  }
  return count;
}
size_t CountPairs(const std::vector<SharedMove>& moves, const ChoiceSets& sets) {
  return CountPairs(moves, [&](uint32_t v) { return sets[v].size(); });
}

// Converts a byte for each choice of each variable to sets of choices.
ChoiceSets ToSets(const Core& core, const std::vector<uint8_t>& keep) {
  ChoiceSets sets(core.variables.size());
  size_t next = 0;
  for (size_t v = 0; v < sets.size(); ++v) {
    for (uint32_t k = 0; k < core.variables[v].size(); ++k) {
      if (keep[next++] != 0) sets[v].push_back(k);
    }
  }
  return sets;
}

bool Insert(std::vector<uint32_t>& sorted, uint32_t k) {
  auto at = std::ranges::lower_bound(sorted, k);
  if (at != sorted.end() && *at == k) return false;
  sorted.insert(at, k);
  return true;
}

// Whether notably fewer pairs are left.
bool IsWorthRemoving(const Core& core, const ChoiceSets& left) {
  size_t all = CountPairs(core.moves, [&](uint32_t v) { return core.variables[v].size(); });
  return static_cast<double>(CountPairs(core.moves, left)) <=
         kWorthRemoving * static_cast<double>(all);
}

}  // namespace

bool Search::CloseMoves(Frame& frame) {
  Core& core = frame.core;
  allowed_ = core.Kept();
  suggested_.resize(allowed_.size());
  for (const PairwiseVariable& variable : problem_.variables)
    at_least_.emplace_back(variable.cost.size(), kForbidden);
  Offer(std::vector<uint32_t>(core.variables.size()));
  if (best_.empty() && core.HasTerms() && IsInfeasible()) return true;
  Messages messages;
  if (options_.messages != nullptr) messages = KeepChoices(*options_.messages, allowed_);
  bool priced = !core.HasTerms();
  bool closed = false;
  while (!closed && !CopiesFit(core.moves, options_.few_entries)) {
    Sweeps sweeps(core, frame.prices, messages);
    // Assignments without prices exceed rows, so prices come first.
    closed = RunSweeps(frame, sweeps, priced ? kMostRuns : kRunsBeforePrices) ||
             (!std::exchange(priced, true) && FindPrices(frame, sweeps));
    Note(core, sweeps);
    if (!closed && best_.empty()) {
      closed = IsInfeasible();
      stopped_ = best_.empty();
    }
    if (closed || Stopped()) break;
    if (frame.bound >= best_cost_ * (1 - options_.gap)) stopped_ = options_.gap > 0;
    if (stopped_ || options_.limit.ShareLeft() < kShareOfPairs) break;
    bool is_better = !CanRemove(core, sweeps) && Dive(core, sweeps, kSmallPairs);
    std::vector<uint8_t> keep = Affordable(core, sweeps, Cutoff());
    if ((closed = keep.empty())) break;
    messages = sweeps.MoveState();
    ChoiceSets left = ToSets(core, keep);
    if (IsWorthRemoving(core, left)) {
      messages = KeepChoices(std::move(messages), left);
      core.Keep(keep);
    } else if (!is_better) {
      break;
    }
  }
  moves_bound_ = frame.bound;
  if (closed || Stopped()) return closed;
  stopped_ = !CopiesFit(core.moves, kManyEntries);
  if (stopped_) return false;
  AddCopies(core);
  if (!ReduceFirst(core)) return true;
  OfferGreedy(core);
  return false;
}

bool Search::LookAtMoves(const Core& core, const Sweeps& sweeps, int run) {
  if (sweeps.rounded().possible) {
    std::vector<uint32_t> x = sweeps.rounded().x;
    core.Unwind(x);
    bool is_new = false;
    for (size_t v = 0; v < x.size(); ++v) is_new |= Insert(suggested_[v], x[v]);
    if (is_new) {
      ChoiceSets sets = suggested_;
      for (size_t v = 0; v < best_.size(); ++v) Insert(sets[v], best_[v]);
      SolveAmong(sets, 0);
    }
  }
  if (best_.empty() || sweeps.bound() >= best_cost_ * (1 - options_.gap)) return true;
  if (options_.limit.ShareLeft() < kShareOfPairs) return true;
  if (CanRemove(core, sweeps)) return true;
  return run % kDives == 0 && Dive(core, sweeps, 0) && CanRemove(core, sweeps);
}

bool Search::CanRemove(const Core& core, const Sweeps& sweeps) const {
  std::vector<uint8_t> keep = Affordable(core, sweeps, Cutoff());
  return keep.empty() || IsWorthRemoving(core, ToSets(core, keep));
}

bool Search::Dive(const Core& core, const Sweeps& sweeps, size_t most_pairs) {
  double before = best_cost_;
  ChoiceSets names = core.Kept();
  for (double part = 0.3; part > 1e-4; part /= 3) {
    double cutoff = sweeps.bound() + part * (best_cost_ - sweeps.bound());
    std::vector<uint8_t> keep = Affordable(core, sweeps, cutoff);
    if (keep.empty()) break;
    ChoiceSets sets = ToSets(core, keep);
    for (size_t v = 0; v < sets.size(); ++v) sets[v] = Select(names[v], sets[v]);
    if (SolveAmong(sets, most_pairs)) break;
  }
  return best_cost_ < before;
}

bool Search::SolveAmong(const ChoiceSets& choices, size_t most_pairs) {
  PairwiseProblem few = KeepChoices(problem_, choices);
  if (SizeOf(few).entries > most_pairs && !CopiesFit(few.moves, kSmallEntries)) return false;
  Search search(few, {.limit = options_.limit.Part(kShareOfSmall)}, scale_);
  search.Run();
  counts_.sweeps += search.counts().sweeps;
  counts_.joins += search.counts().joins;
  counts_.branches += search.counts().branches;
  std::vector<uint32_t> x = search.best();
  for (size_t v = 0; v < x.size(); ++v) x[v] = choices[v][x[v]];
  Take(std::move(x));
  return true;
}

// Sharing changes costs, but not feasibility. So it solves a problem without sharing and without
// costs, except the amounts of the first row. The answer is within that row if any assignment is.
bool Search::IsInfeasible() {
  auto clear = [](std::vector<double>& costs) {
    for (double& cost : costs) cost = cost == kForbidden ? kForbidden : 0;
  };
  PairwiseProblem pairs = WithoutSharing(problem_);
  for (PairwiseVariable& variable : pairs.variables) clear(variable.cost);
  for (std::vector<double>& matrix : pairs.matrices) clear(matrix);
  if (!pairs.budgets.empty()) {
    for (const BudgetTerm& term : pairs.budgets[0].terms) {
      std::vector<double>& cost = pairs.variables[term.variable].cost;
      for (size_t k = 0; k < cost.size(); ++k) cost[k] += term.amount[k];
    }
    pairs.budgets.erase(pairs.budgets.begin());
  }
  Search search(pairs, {.limit = options_.limit.Part(kShareOfAny)});
  search.Run();
  Take(search.best());
  return search.finished() && best_.empty();
}

// Stores messages while all choices are present, and the minimum cost of assignments with each
// choice.
void Search::Note(const Core& core, const Sweeps& sweeps) {
  bool wanted = options_.messages != nullptr && options_.messages->empty();
  if (wanted && core.ChoiceCount() == SizeOf(problem_).choices)
    *options_.messages = sweeps.MoveState();
  ChoiceSets names = core.Kept();
  size_t next = 0;
  for (size_t v = 0; v < names.size(); ++v) {
    for (uint32_t k : names[v]) at_least_[v][k] = sweeps.base() + sweeps.excess()[next++];
  }
}

ChoiceSets Search::NearChoices() const {
  ChoiceSets near = allowed_;
  for (double part = 0.5; part > 1e-4; part /= 1.5) {
    if (CountPairs(problem_.moves, near) <= options_.near_entries) break;
    ChoiceSets fewer(near.size());
    for (size_t v = 0; v < near.size(); ++v) {
      for (uint32_t k = 0; k < at_least_[v].size(); ++k) {
        if (at_least_[v][k] < moves_bound_ + part * best_cost_) fewer[v].push_back(k);
      }
    }
    if (std::ranges::none_of(fewer, &std::vector<uint32_t>::empty)) near = std::move(fewer);
  }
  for (size_t v = 0; v < near.size(); ++v) Insert(near[v], best_[v]);
  return near;
}

}  // namespace heddle::search
