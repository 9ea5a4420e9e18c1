#include "heddle/search/solve/solve.h"

#include <algorithm>
#include <cmath>

namespace heddle::search {

double PairwiseAnswer::gap() const {
  if (proved()) return 0;
  double size = std::max(std::abs(objective), std::abs(bound));
  return std::isfinite(size) && size > 0 ? (objective - bound) / size : kForbidden;
}

PairwiseAnswer Solve(const PairwiseProblem& problem, const SolveOptions& options) {
  Diagnostics mistakes = FindErrors(problem);
  HEDDLE_CHECK(mistakes.empty(), Format(mistakes));
  Search search(problem, options);
  search.Run();
  PairwiseAnswer answer;
  answer.x = search.best();
  answer.objective = search.best_cost();
  answer.bound = search.bound();
  answer.tolerance = search.Tolerance(search.best_cost());
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

}  // namespace heddle::search
