#include "heddle/solve/search/bound_rounds.h"

#include <algorithm>
#include <cmath>

#include "heddle/solve/reduce/reduce.h"

namespace heddle {
namespace {

// Enough for messages to come from one end to the other; more make the bound a little better.
constexpr int kMostRuns = 40;
// What choices add is known from the second run on.
constexpr int kFewestRuns = 3;
constexpr double kLittle = 0.02;

// By variable and choice of the core: the choice as the problem numbers it. Nothing but filters stands between.
KeptOf NamesOf(const Core& core) {
  KeptOf names(core.variables.size());
  uint32_t most = 0;
  for (const CoreVariable& variable : core.variables) most = std::max(most, variable.size());
  for (uint32_t k = 0; k < most; ++k) {
    std::vector<uint32_t> x(core.variables.size());
    for (size_t v = 0; v < x.size(); ++v) x[v] = std::min(k, core.variables[v].size() - 1);
    core.Unwind(x);
    for (size_t v = 0; v < x.size(); ++v) {
      if (k < core.variables[v].size()) names[v].push_back(x[v]);
    }
  }
  return names;
}

// By variable, which choices of those that `inner` numbers `outer` keeps.
KeptOf Compose(const KeptOf& inner, KeptOf outer) {
  if (inner.empty()) return outer;
  for (size_t v = 0; v < outer.size(); ++v) {
    for (uint32_t& k : outer[v]) k = inner[v][k];
  }
  return outer;
}

}  // namespace

// Messages are vectors for the ends of the edges in turn (sweeps.h). What the first end of each is told is all that a run begins with.
void BoundRounds::Load(const Core& core, const KeptOf& names, Sweeps& sweeps) {
  size_t next = 0;
  for (const CoreEdge& edge : core.edges) {
    Told& told = told_[{edge.u, edge.v}];
    told.u.resize(std::max(told.u.size(), size_t{names[edge.u].back()} + 1));
    told.v.resize(std::max(told.v.size(), size_t{names[edge.v].back()} + 1));
    for (uint32_t k : names[edge.u]) sweeps.messages()[next++] = told.u[k];
    for (uint32_t k : names[edge.v]) sweeps.messages()[next++] = told.v[k];
  }
}

void BoundRounds::Store(const Core& core, const KeptOf& names, const Sweeps& sweeps) {
  size_t next = 0;
  for (const CoreEdge& edge : core.edges) {
    Told& told = told_[{edge.u, edge.v}];
    for (uint32_t k : names[edge.u]) told.u[k] = sweeps.messages()[next++];
    for (uint32_t k : names[edge.v]) told.v[k] = sweeps.messages()[next++];
  }
}

BoundRounds::Round BoundRounds::Run(const PairwiseProblem& problem, double best,
                                    std::vector<double> prices) {
  HEDDLE_CHECK(problem.relations.empty(), "relations");
  Round out;
  for (const PairwiseVariable& variable : problem.variables)
    out.at_least.emplace_back(variable.cost.size(), kForbidden);
  auto [core, possible] = MakeCore(problem);
  ReduceCounts counts;
  if (!possible || !FilterChoices(core, {}, counts)) {
    out.bound = kForbidden;
    return out;
  }
  KeptOf names = NamesOf(core);
  prices.resize(core.rows.size());
  Sweeps sweeps(core, std::move(prices));
  KeptOf first_names = Compose(kept_, names);
  Load(core, first_names, sweeps);
  for (int i = 1; i <= kMostRuns; ++i) {
    double before = out.bound;
    out.bound = std::max(out.bound, sweeps.Run());
    ++out.sweeps;
    // As long as the best assignment is far away, or there is none, it says little about the bound.
    double missing = std::min(best - out.bound, 0.1 * std::abs(out.bound));
    if (i >= kFewestRuns && out.bound - before <= kLittle * missing) break;
  }
  Store(core, first_names, sweeps);
  if (sweeps.rounded().possible) {
    out.x = sweeps.rounded().x;
    core.Unwind(out.x);
  }
  size_t next = 0;
  for (size_t v = 0; v < names.size(); ++v) {
    for (uint32_t k : names[v]) out.at_least[v][k] = sweeps.base() + sweeps.excess()[next++];
  }
  return out;
}

KeptOf BoundRounds::Round::KeptWithin(double cutoff) const {
  // Sums are rounded.
  double dearer = cutoff + 1e-9 * std::abs(cutoff);
  KeptOf kept(at_least.size());
  for (size_t v = 0; v < kept.size(); ++v) {
    for (uint32_t k = 0; k < at_least[v].size(); ++k) {
      if (at_least[v][k] < dearer) kept[v].push_back(k);
    }
    if (kept[v].empty()) return KeptOf(at_least.size());
  }
  return kept;
}

void BoundRounds::Keep(const KeptOf& kept) { kept_ = Compose(kept_, kept); }

}  // namespace heddle
