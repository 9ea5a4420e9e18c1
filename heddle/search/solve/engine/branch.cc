#include "heddle/search/solve/engine/branch.h"

#include <algorithm>
#include <cmath>

namespace heddle::search {
namespace {

// The variable whose cheap choices differ most in their amounts. The worth is the price of that
// difference, minus the excess of the more expensive choice.
struct AmountCut {
  double worth = 0;
  uint32_t variable = 0;
  const CoreTerm* term = nullptr;
  double middle = 0;
};

void Improve(AmountCut& cut, uint32_t v, const CoreTerm& term, double price,
             std::span<const double> excess) {
  auto best = static_cast<size_t>(std::ranges::min_element(excess) - excess.begin());
  for (size_t k = 0; k < excess.size(); ++k) {
    double difference = term.amount[k] - term.amount[best];
    double worth = std::abs(price * difference) - (excess[k] - excess[best]);
    if (worth > cut.worth) cut = {worth, v, &term, term.amount[best] + difference / 2};
  }
}

// Chooses the variable whose second best choice has the smallest excess; among equals the one with
// most choices. Splits its choices at the middle of their excess.
Branch CutByExcess(const Core& core, std::span<const double> excess) {
  uint32_t pick = 0;
  std::pair least(kForbidden, 0.0);
  std::span<const double> picked;
  size_t first = 0;
  for (uint32_t v = 0; v < core.variables.size(); ++v) {
    std::span<const double> own = excess.subspan(first, core.variables[v].size());
    first += own.size();
    if (own.size() < 2) continue;
    std::vector<double> sorted(own.begin(), own.end());
    std::ranges::nth_element(sorted, sorted.begin() + 1);
    std::pair rank(sorted[1], -static_cast<double>(own.size()));
    if (rank >= least) continue;
    least = rank;
    pick = v;
    picked = own;
  }
  std::vector<uint32_t> order(picked.size());
  for (uint32_t k = 0; k < order.size(); ++k) order[k] = k;
  std::ranges::stable_sort(order, {}, [&](uint32_t k) { return picked[k]; });
  Branch branch{pick, std::vector<uint8_t>(picked.size())};
  for (size_t i = 0; i < (order.size() + 1) / 2; ++i) branch.keep[order[i]] = 1;
  return branch;
}

}  // namespace

std::vector<uint8_t> Affordable(const Core& core, const Sweeps& sweeps, double cutoff) {
  std::span<const double> excess = sweeps.excess();
  std::vector<uint8_t> keep;
  for (const CoreVariable& variable : core.variables) {
    bool any = variable.gone();
    for (uint32_t k = 0; k < variable.size(); ++k) {
      bool affordable = !(sweeps.base() + excess[keep.size()] >= cutoff);
      any |= affordable;
      keep.push_back(affordable);
    }
    if (!any) return {};
  }
  return keep;
}

Branch ChooseBranch(const Core& core, const Sweeps& sweeps) {
  AmountCut cut;
  size_t first = 0;
  for (uint32_t v = 0; v < core.variables.size(); ++v) {
    const CoreVariable& variable = core.variables[v];
    std::span<const double> excess = sweeps.excess().subspan(first, variable.size());
    for (const CoreTerm& term : variable.terms)
      Improve(cut, v, term, sweeps.prices()[term.row], excess);
    first += variable.size();
  }
  if (cut.term == nullptr) return CutByExcess(core, sweeps.excess());
  Branch branch{cut.variable, {}};
  for (double amount : cut.term->amount) branch.keep.push_back(amount <= cut.middle);
  return branch;
}

void KeepOf(Core& core, uint32_t variable, std::span<const uint8_t> keep) {
  std::vector<uint8_t> all(core.ChoiceCount(), 1);
  size_t first = 0;
  for (uint32_t v = 0; v < variable; ++v) first += core.variables[v].size();
  std::ranges::copy(keep, all.begin() + static_cast<ptrdiff_t>(first));
  core.Keep(all);
}

}  // namespace heddle::search
