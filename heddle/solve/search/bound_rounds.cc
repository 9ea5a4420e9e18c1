#include "heddle/solve/search/bound_rounds.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "heddle/solve/reduce/reduce.h"

namespace heddle {
namespace {

// Enough for messages to come from one end to the other; more make the bound a little better.
constexpr int kMostRuns = 40;
// What choices add is known from the second run on.
constexpr int kFewestRuns = 3;
constexpr double kLittle = 0.02;

// Sums are rounded.
double Dearer(double cutoff) { return cutoff + 1e-9 * std::abs(cutoff); }

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

// For each choice of one end of an edge, what messages find best at the other: there choices cost `own`, this edge aside.
std::vector<uint32_t> BestOther(EdgeView cost, size_t size, const std::vector<double>& own) {
  std::vector<uint32_t> best(size);
  for (size_t k = 0; k < size; ++k) {
    double least = kForbidden;
    for (uint32_t other = 0; other < own.size(); ++other) {
      double sum = own[other] + cost(k, other);
      if (!(sum < least)) continue;
      least = sum;
      best[k] = other;
    }
  }
  return best;
}

// Whether it pays to go on with fewer choices: assignments within `cutoff` take so few of them that what is left is half as large.
bool LeavesFew(const Core& core, const Sweeps& sweeps, double cutoff) {
  double most = Dearer(cutoff) - sweeps.base();
  std::vector<size_t> kept(core.variables.size());
  for (size_t v = 0, next = 0; v < kept.size(); ++v) {
    for (size_t k = core.variables[v].size(); k-- > 0;)
      kept[v] += sweeps.excess()[next++] < most ? 1 : 0;
  }
  size_t left = 0;
  for (const CoreEdge& edge : core.edges) left += kept[edge.u] * kept[edge.v];
  return 2 * left < core.EntryCount();
}

// Choices that the core has lost get any.
std::vector<std::vector<uint32_t>> BestWith(const Core& core, const KeptOf& names,
                                            const Sweeps& sweeps,
                                            std::span<const BoundRounds::Link> links) {
  std::map<BoundRounds::Link, std::pair<uint32_t, size_t>> edges;
  size_t message = 0;
  for (uint32_t e = 0; e < core.edges.size(); ++e) {
    const CoreEdge& edge = core.edges[e];
    edges[{edge.u, edge.v}] = {e, message + names[edge.u].size()};
    edges[{edge.v, edge.u}] = {e, message};
    message += names[edge.u].size() + names[edge.v].size();
  }
  std::vector<size_t> first;
  for (size_t next = 0; const std::vector<uint32_t>& own : names) {
    first.push_back(next);
    next += own.size();
  }
  std::vector<std::vector<uint32_t>> out;
  for (auto [from, to] : links) {
    std::vector<uint32_t>& best = out.emplace_back(size_t{names[from].back()} + 1);
    if (from == to) {
      std::iota(best.begin(), best.end(), 0U);
      continue;
    }
    auto [e, told] = edges.at({from, to});
    std::vector<double> own(names[to].size());
    for (size_t k = 0; k < own.size(); ++k)
      own[k] = sweeps.excess()[first[to] + k] - sweeps.messages()[told + k];
    std::vector<uint32_t> others = BestOther(core.View(e, from), names[from].size(), own);
    for (size_t k = 0; k < others.size(); ++k) best[names[from][k]] = names[to][others[k]];
  }
  return out;
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

BoundRounds::Round BoundRounds::Run(PairwiseProblem problem, double best, const Limit& limit,
                                    std::vector<double> prices, std::span<const Link> links) {
  HEDDLE_CHECK(problem.relations.empty(), "relations");
  Round out;
  for (const PairwiseVariable& variable : problem.variables)
    out.at_least.emplace_back(variable.cost.size(), kForbidden);
  auto [core, possible] = MakeCore(std::move(problem));
  ReduceCounts counts;
  limit.Spend(core.EntryCount());
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
    limit.Spend(sweeps.work());
    if (sweeps.rounded().possible) {
      out.suggested.push_back(sweeps.rounded().x);
      core.Unwind(out.suggested.back());
    }
    // As long as the best assignment is far away, or there is none, it says little about the bound.
    double missing = std::min(best - out.bound, 0.1 * std::abs(out.bound));
    if (i < kFewestRuns) continue;
    if (out.bound - before <= kLittle * missing || LeavesFew(core, sweeps, best)) break;
    if (limit.Spent()) break;
  }
  Store(core, first_names, sweeps);
  size_t next = 0;
  for (size_t v = 0; v < names.size(); ++v) {
    for (uint32_t k : names[v]) out.at_least[v][k] = sweeps.base() + sweeps.excess()[next++];
  }
  out.best_with = BestWith(core, names, sweeps, links);
  return out;
}

KeptOf BoundRounds::Round::KeptWithin(double cutoff) const {
  double dearer = Dearer(cutoff);
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
