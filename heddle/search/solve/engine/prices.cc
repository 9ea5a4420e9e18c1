// Finds prices of rows that maximize the bound.
#include <algorithm>
#include <cmath>

#include "heddle/search/solve/engine/engine.h"
#include "heddle/search/solve/engine/price_search.h"
#include "heddle/search/solve/engine/round.h"

namespace heddle::search {
namespace {

// Returns the bound of a row that its price is for.
double BoundOf(const CoreRow& row, double price) { return price > 0 ? row.hi : row.lo; }

PriceLine LineOf(const Core& core, uint32_t row, const std::vector<double>& prices,
                 const std::vector<uint32_t>& x) {
  std::vector<double> amounts = Amounts(core, x);
  PriceLine line{core.Cost(x), amounts[row], x};
  for (uint32_t r = 0; r < prices.size(); ++r) {
    if (r != row && prices[r] != 0)
      line.cost += prices[r] * (amounts[r] - BoundOf(core.rows[r], prices[r]));
  }
  return line;
}

// Returns the highest price of each row: there, the largest step of one variable outweighs all
// costs together a thousand times. At higher prices, the rounding errors of priced amounts would
// exceed the costs.
std::vector<double> HighestPrices(const Core& core, double all_costs) {
  std::vector<double> highest = LargestSteps(core);
  for (double& price : highest) price = price > 0 ? 1e3 * all_costs / price : 0;
  return highest;
}

// Changes all prices in proportion to the rows' excess (Polyak), with momentum.
class PriceSteps {
 public:
  PriceSteps(const Core& core, std::vector<double> highest)
      : core_(core),
        highest_(std::move(highest)),
        scale_(core.rows.size()),
        direction_(core.rows.size()) {
    for (const CoreVariable& variable : core.variables) {
      for (const CoreTerm& term : variable.terms) {
        auto [least, most] = std::ranges::minmax(term.amount);
        scale_[term.row] += most - least;
      }
    }
  }

  // Takes a step after which the bound would rise by `missing` if it kept its slope. Returns false
  // if no row is exceeded.
  bool Take(std::vector<double>& prices, const std::vector<double>& amounts, double missing) {
    constexpr double kKept = 0.3;
    double norm = 0;
    for (uint32_t r = 0; r < prices.size(); ++r) {
      if (scale_[r] == 0) continue;
      double slope = Slope(core_.rows[r], prices[r], amounts[r]) / scale_[r];
      direction_[r] = (1 - kKept) * slope + kKept * direction_[r];
      norm += direction_[r] * direction_[r];
    }
    if (norm < 1e-20) return false;
    for (uint32_t r = 0; r < prices.size(); ++r) {
      if (scale_[r] == 0) continue;
      double next = prices[r] + missing / norm * direction_[r] / scale_[r];
      // A price passes from one bound to the other only through 0. An infinite bound has no price.
      if (next * prices[r] < 0 || std::isinf(BoundOf(core_.rows[r], next))) next = 0;
      prices[r] = std::clamp(next, -highest_[r], highest_[r]);
    }
    return true;
  }

 private:
  const Core& core_;
  std::vector<double> highest_;
  // By row: the range of its sum over all choices. Rows have different units, such as bytes and
  // shares.
  std::vector<double> scale_;
  std::vector<double> direction_;
};

}  // namespace

bool Search::FindPrices(Frame& frame, Sweeps& sweeps) {
  const Core& core = frame.core;
  auto live_rows = [&] {
    std::vector<uint32_t> live;
    std::vector<double> amounts = Amounts(core, sweeps.rounded().x);
    for (uint32_t r = 0; r < core.rows.size(); ++r) {
      if (sweeps.prices()[r] != 0 || Slope(core.rows[r], 0, amounts[r]) != 0) live.push_back(r);
    }
    return live;
  };
  if (!sweeps.rounded().possible) return false;
  std::vector<uint32_t> live = live_rows();
  bool closed = false;
  if (live.size() == 1) {
    closed = FindPriceOf(live[0], frame, sweeps);
    if (!closed) live = live_rows();
  }
  if (!closed && live.size() > 1) closed = FindAllPrices(frame, sweeps);
  frame.prices = sweeps.prices();
  return closed;
}

// The bound rises with the price of a row while assignments exceed it, and then falls.
bool Search::FindPriceOf(uint32_t row, Frame& frame, Sweeps& sweeps) {
  const Core& core = frame.core;
  std::vector<double> prices = sweeps.prices();
  PriceSearch search(core.rows[row], HighestPrices(core, scale_)[row], prices[row]);
  while (sweeps.rounded().possible && !Stopped()) {
    std::optional<PriceLine> kept;
    if (sweeps.kept().possible) kept = LineOf(core, row, prices, sweeps.kept().x);
    bool goes_on = search.Step(sweeps.bound(), LineOf(core, row, prices, sweeps.rounded().x), kept);
    if (search.over() && search.within()) OfferMix(core, search.within()->x, search.over()->x);
    if (!goes_on) break;
    prices[row] = search.price();
    sweeps.SetPrices(prices);
    if (RunSweeps(frame, sweeps, 20)) return true;
  }
  prices[row] = search.best_price();
  return SetBestPrices(frame, sweeps, prices);
}

// Changes all prices in the direction of the amounts by which assignments exceed the rows. The
// length of a step is the gap between bound and best cost; it shrinks if the bound does not rise.
bool Search::FindAllPrices(Frame& frame, Sweeps& sweeps) {
  constexpr int kMostSteps = 60;
  const Core& core = frame.core;
  PriceSteps steps(core, HighestPrices(core, scale_));
  std::vector<double> prices = sweeps.prices();
  std::vector<double> best = prices;
  double best_bound = sweeps.bound();
  double length = 1;
  int stale = 0;
  for (int step = 0; step < kMostSteps && sweeps.rounded().possible && !Stopped(); ++step) {
    OfferRepaired(core, sweeps);
    double missing =
        best_cost_ == kForbidden ? 0.05 * std::abs(best_bound) + 1e-6 : best_cost_ - sweeps.bound();
    if (!steps.Take(prices, Amounts(core, sweeps.rounded().x), length * missing)) break;
    sweeps.SetPrices(prices);
    if (RunSweeps(frame, sweeps, 4)) return true;
    if (sweeps.bound() > best_bound) {
      best_bound = sweeps.bound();
      best = prices;
      stale = 0;
    } else if (++stale % 4 == 0) {
      length /= 2;
      prices = best;
    }
  }
  return SetBestPrices(frame, sweeps, best);
}

bool Search::SetBestPrices(Frame& frame, Sweeps& sweeps, const std::vector<double>& prices) {
  if (sweeps.prices() != prices) sweeps.SetPrices(prices);
  return RunSweeps(frame, sweeps, 8);
}

void Search::OfferMix(const Core& core, const std::vector<uint32_t>& kept,
                      const std::vector<uint32_t>& other) {
  if (!core.moves.empty() || !KeepsRows(core, kept)) return;
  std::vector<uint32_t> x = Mix(core, kept, other);
  Polish(core, x);
  Offer(x);
}

void Search::OfferRepaired(const Core& core, const Sweeps& sweeps) {
  if (!core.moves.empty()) return;
  std::vector<uint32_t> x = sweeps.rounded().x;
  if (Repair(core, options_.limit, x)) {
    Polish(core, x);
    Offer(x);
  }
  if (sweeps.kept().possible) OfferMix(core, sweeps.kept().x, sweeps.rounded().x);
}

}  // namespace heddle::search
