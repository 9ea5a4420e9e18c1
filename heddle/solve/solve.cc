#include "heddle/solve/solve.h"

#include <algorithm>
#include <cmath>

#include "heddle/solve/reduce/reduce.h"
#include "heddle/solve/search/branch.h"
#include "heddle/solve/search/sweeps.h"

namespace heddle {

double PairwiseAnswer::gap() const {
  if (proved()) return 0;
  double size = std::max(std::abs(objective), std::abs(bound));
  return std::isfinite(size) && size > 0 ? (objective - bound) / size : kForbidden;
}

PairwiseAnswer Solve(const PairwiseProblem& problem, const SolveOptions& options) {
  Diagnostics mistakes = FindErrors(problem);
  HEDDLE_CHECK(mistakes.empty(), Format(mistakes));
  Search search(problem, {.deadline = Deadline(options.time_limit)});
  for (const std::vector<uint32_t>& start : options.starts) search.Start(start);
  search.Run();
  PairwiseAnswer answer;
  answer.x = search.best();
  answer.objective = search.best_cost();
  answer.bound = search.bound();
  answer.tolerance = search.Tolerance(search.best_cost());
  answer.prices = search.prices();
  answer.counts = search.counts();
  if (search.finished() || answer.bound >= answer.objective - answer.tolerance) {
    answer.outcome =
        answer.objective == kForbidden ? SolveOutcome::kInfeasible : SolveOutcome::kProved;
    answer.bound = answer.objective;
  } else {
    answer.outcome =
        answer.objective == kForbidden ? SolveOutcome::kNoAnswer : SolveOutcome::kStopped;
  }
  return answer;
}

WorthwhileChoices FindWorthwhile(const PairwiseProblem& problem, double cutoff,
                                 std::vector<double> prices) {
  // Enough for messages to come from one end to the other; more make the bound a little better.
  constexpr int kMostRuns = 40;
  constexpr int kOften = 5;
  HEDDLE_CHECK(problem.relations.empty(), "relations");
  WorthwhileChoices out;
  out.kept.resize(problem.variables.size());
  auto [core, possible] = MakeCore(problem);
  ReduceCounts counts;
  if (!possible || !FilterChoices(core, {}, counts)) {
    out.bound = kForbidden;
    return out;
  }
  prices.resize(core.rows.size());
  Sweeps sweeps(core, std::move(prices));
  for (int i = 1; i <= kMostRuns; ++i) {
    double before = out.bound;
    out.bound = std::max(out.bound, sweeps.Run());
    if (i % kOften == 0 && out.bound - before <= 1e-3 * (cutoff - out.bound)) break;
  }
  // Equal is worth a look, too, and sums are rounded.
  double dearer = cutoff + 1e-9 * std::abs(cutoff);
  std::vector<uint8_t> keep = Affordable(core, sweeps, dearer);
  if (keep.empty()) return out;
  size_t first = 0;
  std::vector<size_t> starts;
  uint32_t most = 0;
  for (const CoreVariable& variable : core.variables) {
    starts.push_back(first);
    first += variable.size();
    most = std::max(most, variable.size());
  }
  // Choices as the problem numbers them: nothing but filters stands between.
  for (uint32_t k = 0; k < most; ++k) {
    std::vector<uint32_t> x(core.variables.size());
    for (size_t v = 0; v < x.size(); ++v) x[v] = std::min(k, core.variables[v].size() - 1);
    core.Unwind(x);
    for (size_t v = 0; v < x.size(); ++v) {
      if (k < core.variables[v].size() && keep[starts[v] + k] != 0) out.kept[v].push_back(x[v]);
    }
  }
  return out;
}

}  // namespace heddle
