#include "heddle/search/solve/engine/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "heddle/search/solve/engine/round.h"

namespace heddle::search {
namespace {

// Maximum number of matrix entries of all frames together.
constexpr size_t kMostFrameEntries = 2 * kMostEntries;
// Limits of the choices of joined variables. Uses the first limit that allows any join.
constexpr size_t kJoinChoices[] = {64, 256, 1024, 4096};
constexpr size_t kLonelyChoices = 16'384;
constexpr size_t kJoinEntries = 1'000'000;
// Maximum steps of one elimination: usually, and after everything else failed.
constexpr size_t kUsualWork = 4'000'000;
constexpr size_t kMostWork = 256'000'000;
// Starts over if the choices that are too expensive are at least 1/20 of all.
constexpr size_t kWorthKeeping = 20;
// Runs before the first reduction.
constexpr int kFirstSweeps = 20;

double LargestCost(const std::vector<double>& costs) {
  double largest = 0;
  for (double cost : costs) {
    if (cost != kForbidden) largest = std::max(largest, std::abs(cost));
  }
  return largest;
}

ProblemSize SizeOf(const Core& core) {
  auto edges = std::ranges::count_if(core.edges, [](const CoreEdge& e) { return !e.gone(); });
  return {core.VariableCount(), core.ChoiceCount(), static_cast<size_t>(edges), core.EntryCount()};
}

// Whether a remaining variable could be eliminated with more steps.
bool HasBridge(const Core& core) {
  return std::ranges::any_of(core.variables, [](const CoreVariable& v) {
    return !v.gone() && v.terms.empty() && v.edges.size() == 2;
  });
}

// Returns the sum of the largest costs.
double ScaleOf(const PairwiseProblem& problem) {
  double scale = 0;
  std::vector<double> largest;
  for (const std::vector<double>& matrix : problem.matrices) largest.push_back(LargestCost(matrix));
  for (const PairwiseVariable& variable : problem.variables) scale += LargestCost(variable.cost);
  for (const PairwiseEdge& edge : problem.edges) scale += largest[edge.matrix.index()];
  for (const SharedMove& move : problem.moves)
    scale += LargestCost(move.prices->all) * static_cast<double>(move.readers.size());
  return scale;
}

// Returns a lower bound: the sum of the smallest costs.
double SimpleBound(const Core& core) {
  double bound = core.constant;
  for (const CoreVariable& variable : core.variables) {
    if (!variable.gone()) bound += *std::ranges::min_element(variable.cost);
  }
  for (const CoreEdge& edge : core.edges) {
    if (!edge.gone()) bound += *std::ranges::min_element(edge.cost);
  }
  return bound;
}

}  // namespace

Search::Search(const PairwiseProblem& problem, const SolveOptions& options)
    : Search(problem, options, ScaleOf(problem)) {}

Search::Search(const PairwiseProblem& problem, const SolveOptions& options, double scale)
    : problem_(problem), options_(options), scale_(scale) {
  for (const std::vector<uint32_t>& start : options.starts) Take(start);
}

double Search::Tolerance(double cost) const {
  return cost == kForbidden ? 0 : 1e-9 * std::abs(cost) + 1e-15 * scale_;
}

void Search::Run() {
  auto [core, possible] = MakeCore(problem_);
  options_.limit.Spend(core.EntryCount());
  if (possible) counts_.reduced.contracted = problem_.variables.size() - core.VariableCount();
  bool has_moves = !core.moves.empty();
  if (possible && (has_moves || ReduceFirst(core))) {
    Frame& root = frames_.emplace_back();
    root.prices.resize(core.rows.size());
    if (!has_moves) root.bound = SimpleBound(core);
    root.core = std::move(core);
    if (!has_moves) OfferGreedy(root.core);
    if (Close(root)) frames_.clear();
  }
  while (!frames_.empty() && !Stopped()) {
    if (!frames_.back().branch || frames_.back().bound >= Cutoff()) {
      frames_.pop_back();
    } else {
      OpenBranch();
    }
  }
  bound_ = best_cost_;
  for (const Frame& frame : frames_) bound_ = std::min(bound_, frame.bound);
  if (options_.near != nullptr && !best_.empty() && has_moves) *options_.near = NearChoices();
}

// With a good assignment to start from, few choices are worth comparing. Costs stay unchanged,
// because adding messages would blur equal costs. Rows have no prices yet.
bool Search::RemoveDear(Core& core) {
  if (best_cost_ == kForbidden || core.HasTerms()) return true;
  if (!FilterChoices(core, {options_.limit}, counts_.reduced)) return false;
  Sweeps sweeps(core, std::vector<double>(core.rows.size()));
  double bound = -kForbidden;
  for (int i = 1; i <= kFirstSweeps && !Stopped(); ++i) {
    double before = std::exchange(bound, std::max(bound, sweeps.Run()));
    ++counts_.sweeps;
    options_.limit.Spend(sweeps.work());
    if (i > 2 && bound - before <= 0.02 * (best_cost_ - bound)) break;
  }
  if (Stopped()) return true;
  std::vector<uint8_t> keep = Affordable(core, sweeps, Cutoff());
  if (keep.empty()) return false;
  core.Keep(keep);
  return true;
}

bool Search::ReduceFirst(Core& core) {
  if (!RemoveDear(core) || !Reduce(core, {options_.limit, kUsualWork}, counts_.reduced))
    return false;
  counts_.left = SizeOf(core);
  return true;
}

// The first half of a branch becomes a new frame. The second half remains in this one.
void Search::OpenBranch() {
  Frame& top = frames_.back();
  Branch branch = *std::move(top.branch);
  top.branch.reset();
  ++counts_.branches;
  if (branch.first_half_done) {
    for (uint8_t& keep : branch.keep) keep = keep == 0;
    KeepOf(top.core, branch.variable, branch.keep);
    if (Close(top)) frames_.pop_back();
    return;
  }
  Frame half;
  half.core = top.core.Copy(half.from);
  options_.limit.Spend(half.core.EntryCount());
  half.prices = top.prices;
  half.bound = top.bound;
  auto at = std::ranges::lower_bound(half.from, branch.variable) - half.from.begin();
  KeepOf(half.core, static_cast<uint32_t>(at), branch.keep);
  branch.first_half_done = true;
  top.branch = std::move(branch);
  frames_.push_back(std::move(half));
  size_t entries = 0;
  for (const Frame& frame : frames_) entries += frame.core.EntryCount();
  stopped_ = entries > kMostFrameEntries;
  if (!stopped_ && Close(frames_.back())) frames_.pop_back();
}

bool Search::Close(Frame& frame) {
  if (!frame.core.moves.empty()) {
    if (CloseMoves(frame)) return true;
    if (Stopped()) return false;
  }
  ReduceCounts counts;
  // Searching for prices again pays off after joining many variables, but not after removing
  // choices.
  size_t priced_variables = SIZE_MAX;
  for (size_t most_work = kUsualWork;;) {
    if (!Reduce(frame.core, {options_.limit, most_work}, counts)) return true;
    if (frame.core.VariableCount() == 0) {
      Offer(std::vector<uint32_t>(frame.core.variables.size()));
      return true;
    }
    if (Stopped()) return false;
    for (size_t r = 0; r < frame.prices.size(); ++r) {
      const CoreRow& row = frame.core.rows[r];
      if (std::isinf(frame.prices[r] > 0 ? row.hi : row.lo)) frame.prices[r] = 0;
    }
    Sweeps sweeps(frame.core, frame.prices);
    if (RunSweeps(frame, sweeps, 100)) return true;
    size_t variables = frame.core.VariableCount();
    if (frame.core.HasTerms() && variables <= priced_variables - priced_variables / 8) {
      priced_variables = variables;
      if (FindPrices(frame, sweeps)) return true;
    }
    if (Stopped()) return false;
    std::vector<uint8_t> keep = Affordable(frame.core, sweeps, Cutoff());
    if (keep.empty()) return true;
    auto dear = static_cast<size_t>(std::ranges::count(keep, 0));
    if (dear * kWorthKeeping > keep.size()) {
      sweeps.Absorb(frame.core);
      frame.core.Keep(keep);
      continue;
    }
    Branch branch = ChooseBranch(frame.core, sweeps);
    sweeps.Absorb(frame.core);
    if (std::exchange(most_work, kMostWork) < kMostWork && HasBridge(frame.core)) continue;
    if (options_.join && JoinSome(frame.core)) continue;
    frame.branch = std::move(branch);
    return false;
  }
}

bool Search::JoinSome(Core& core) {
  for (size_t choices : kJoinChoices) {
    size_t joins = JoinVariables(core, {choices, kLonelyChoices, kJoinEntries});
    counts_.joins += joins;
    if (joins == 0) continue;
    options_.limit.Spend(core.EntryCount());
    return true;
  }
  return false;
}

// One run. Rounding with moves takes as long as a run, so only some runs round.
bool Search::Step(Frame& frame, Sweeps& sweeps, bool rounds) {
  frame.bound = std::max(frame.bound, sweeps.Run(rounds));
  ++counts_.sweeps;
  options_.limit.Spend(sweeps.work());
  for (const Rounding* rounding : {&sweeps.rounded(), &sweeps.kept()}) {
    if (rounds && rounding->possible) Offer(rounding->x);
  }
  return frame.bound >= Cutoff();
}

// Runs while the bound rises by a share of the remaining gap, and at least until the excess of
// choices is known.
bool Search::RunSweeps(Frame& frame, Sweeps& sweeps, int most) {
  constexpr int kOften = 4;
  bool has_moves = !frame.core.moves.empty();
  double before = -kForbidden;
  for (int i = 1; i <= most && !Stopped(); ++i) {
    if (Step(frame, sweeps, !has_moves || i % kOften == 0)) return true;
    if (i % kOften != 0) continue;
    if (!has_moves) {
      OfferPolished(frame.core, sweeps);
    } else if (LookAtMoves(frame.core, sweeps, i)) {
      return frame.bound >= Cutoff();
    }
    double bound = sweeps.bound();
    // While the best assignment is far from optimal, or missing, the gap to it overestimates the
    // room of the bound.
    double missing = std::min(best_cost_ - bound, (has_moves ? 0.01 : 0.1) * std::abs(bound));
    if (bound - before <= (has_moves ? 0.005 : 0.01) * missing) return false;
    before = bound;
  }
  return false;
}

// Provides a first assignment, even if the limit is spent already.
void Search::OfferGreedy(const Core& core) {
  std::vector<uint32_t> x = Greedy(core);
  if (core.Cost(x) != kForbidden && Repair(core, options_.limit, x)) Offer(std::move(x));
}

void Search::OfferPolished(const Core& core, const Sweeps& sweeps) {
  const Rounding& rounding = core.HasTerms() ? sweeps.kept() : sweeps.rounded();
  if (!rounding.possible) return;
  std::vector<uint32_t> x = rounding.x;
  Polish(core, x);
  Offer(std::move(x));
}

void Search::Offer(std::vector<uint32_t> x) {
  const Core& core = frames_.back().core;
  if (!(core.Cost(x) < best_cost_) || !KeepsRows(core, x)) return;
  for (size_t i = frames_.size(); i-- > 0;) {
    frames_[i].core.Unwind(x);
    if (i == 0) break;
    std::vector<uint32_t> below(frames_[i - 1].core.variables.size());
    for (size_t v = 0; v < frames_[i].from.size(); ++v) below[frames_[i].from[v]] = x[v];
    x = std::move(below);
  }
  Take(std::move(x));
}

void Search::Take(std::vector<uint32_t> x) {
  // Variables of copies follow the variables of the problem.
  if (x.size() < problem_.variables.size()) return;
  x.resize(problem_.variables.size());
  for (const PairwiseBudget& budget : problem_.budgets) {
    if (!Keeps(budget, Amount(budget, x))) return;
  }
  double cost = Cost(problem_, x);
  if (!(cost < best_cost_)) return;
  best_cost_ = cost;
  best_ = std::move(x);
}

}  // namespace heddle::search
