#include "heddle/auto/shared/kept.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace heddle {

KeptOf Allowed(const PairwiseProblem& problem) {
  KeptOf kept;
  for (const PairwiseVariable& variable : problem.variables) {
    std::vector<uint32_t>& all = kept.emplace_back(variable.cost.size());
    std::iota(all.begin(), all.end(), 0U);
  }
  for (const PairwiseRestriction& restriction : problem.restrictions) {
    std::erase_if(kept[restriction.variable.index()], [&](uint32_t k) {
      return std::ranges::find(restriction.allowed, k) == restriction.allowed.end();
    });
  }
  return kept;
}

KeptOf Within(const std::vector<std::vector<double>>& at_least, double cutoff) {
  // Sums are rounded.
  double dearer = cutoff + 1e-9 * std::abs(cutoff);
  KeptOf kept(at_least.size());
  for (size_t v = 0; v < kept.size(); ++v) {
    for (uint32_t k = 0; k < at_least[v].size(); ++k) {
      if (at_least[v][k] < dearer) kept[v].push_back(k);
    }
    if (kept[v].empty()) return {};
  }
  return kept;
}

std::vector<uint32_t> Among(const KeptOf& kept, std::vector<uint32_t> x) {
  for (size_t v = 0; v < x.size(); ++v) {
    auto at = std::ranges::lower_bound(kept[v], x[v]);
    if (at == kept[v].end() || *at != x[v]) return {};
    x[v] = static_cast<uint32_t>(at - kept[v].begin());
  }
  return x;
}

}  // namespace heddle
