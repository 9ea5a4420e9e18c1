// Prices for rows: what a unit of each must cost for the bound to be largest.
#include <algorithm>
#include <cmath>

#include "heddle/solve/search/round.h"
#include "heddle/solve/search/search.h"

namespace heddle {
namespace {

// An assignment as a line over the price of one row: it costs `cost` plus the price times what it takes beyond the limit.
struct PriceLine {
  double cost;
  double amount;
  std::vector<uint32_t> x;
};

// The bound of a row that its price is for.
double Limit(const CoreRow& row, double price) { return price > 0 ? row.hi : row.lo; }

PriceLine LineOf(const Core& core, uint32_t row, const std::vector<double>& prices,
                 const std::vector<uint32_t>& x) {
  std::vector<double> amounts = Amounts(core, x);
  PriceLine line{core.Cost(x), amounts[row], x};
  for (uint32_t r = 0; r < prices.size(); ++r) {
    if (r != row && prices[r] != 0)
      line.cost += prices[r] * (amounts[r] - Limit(core.rows[r], prices[r]));
  }
  return line;
}

// The highest price of each row: the largest step that one variable can make in it then outweighs all costs together a thousand
// times. Beyond that, costs would drown in the rounding of priced amounts.
std::vector<double> HighestPrices(const Core& core, double all_costs) {
  std::vector<double> highest = LargestSteps(core);
  for (double& price : highest) price = price > 0 ? 1e3 * all_costs / price : 0;
  return highest;
}

// What is wrong with an amount: how far it is beyond the bound that the price is for, or, without a price, beyond either.
double Slope(const CoreRow& row, double price, double amount) {
  if (price > 0 || (price == 0 && amount > row.hi)) return amount - row.hi;
  if (price < 0 || (price == 0 && amount < row.lo)) return amount - row.lo;
  return 0;
}

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
  if (live.size() == 1) {
    if (FindPriceOf(live[0], frame, sweeps)) return true;
    live = live_rows();
  }
  if (live.size() > 1 && FindAllPrices(frame, sweeps)) return true;
  frame.prices = sweeps.prices();
  return false;
}

// With the price of one row the bound rises as long as assignments overrun it, and falls from there on. The best price is where the
// lines of two assignments cross, one that overruns the row and one that does not.
bool Search::FindPriceOf(uint32_t row, Frame& frame, Sweeps& sweeps) {
  constexpr int kMostSteps = 14;
  const Core& core = frame.core;
  std::optional<PriceLine> over;
  std::optional<PriceLine> within;
  double highest = HighestPrices(core, scale_)[row];
  // Which bound of the row the lines are for.
  bool upper = true;
  std::vector<double> best = sweeps.prices();
  double best_bound = sweeps.bound();
  for (int step = 0; step < kMostSteps && sweeps.rounded().possible && !Stopped(); ++step) {
    std::vector<double> prices = sweeps.prices();
    double price = prices[row];
    PriceLine now = LineOf(core, row, prices, sweeps.rounded().x);
    double slope = Slope(core.rows[row], price, now.amount);
    if (price == 0 && slope == 0) break;
    if (upper != (price > 0 || (price == 0 && slope > 0))) {
      upper = !upper;
      over.reset();
      within.reset();
    }
    double limit = upper ? core.rows[row].hi : core.rows[row].lo;
    (upper == (slope > 0) && slope != 0 ? over : within) = std::move(now);
    auto value = [&](const PriceLine& line) { return line.cost + price * (line.amount - limit); };
    if (sweeps.kept().possible) {
      PriceLine kept = LineOf(core, row, prices, sweeps.kept().x);
      if (!within || value(kept) < value(*within)) within = std::move(kept);
    }
    double next = 0;
    if (!over) {
      next = std::abs(price) < 1e-12 ? 0 : price / 2;
    } else if (!within) {
      double start = (1e-3 * std::abs(over->cost) + 1e-6) / std::abs(over->amount - limit);
      next = price != 0 ? 2 * price : upper ? start : -start;
    } else {
      OfferMix(core, within->x, over->x);
      next = (within->cost - over->cost) / (over->amount - within->amount);
      if (upper ? next < 0 : next > 0) next = 0;
    }
    next = std::clamp(next, -highest, highest);
    if (std::abs(next - price) <= 1e-7 * std::max(std::abs(next), std::abs(price))) break;
    prices[row] = next;
    sweeps.SetPrices(prices);
    if (RunSweeps(frame, sweeps, 20)) return true;
    if (sweeps.bound() <= best_bound) continue;
    best_bound = sweeps.bound();
    best = std::move(prices);
  }
  return SetBestPrices(frame, sweeps, best);
}

// Several prices at once follow the amounts that assignments overrun, by steps that are as long as the bound is short of the best
// cost (Polyak), and shorter when that does not help.
bool Search::FindAllPrices(Frame& frame, Sweeps& sweeps) {
  constexpr int kMostSteps = 60;
  constexpr double kKept = 0.3;
  const Core& core = frame.core;
  std::vector<double> scale(core.rows.size());
  for (const CoreVariable& variable : core.variables) {
    for (const CoreTerm& term : variable.terms) {
      auto [least, most] = std::ranges::minmax(term.amount);
      scale[term.row] += most - least;
    }
  }
  std::vector<double> highest = HighestPrices(core, scale_);
  std::vector<double> prices = sweeps.prices();
  std::vector<double> best = prices;
  double best_bound = sweeps.bound();
  std::vector<double> direction(prices.size());
  double length = 1;
  int stale = 0;
  for (int step = 0; step < kMostSteps && sweeps.rounded().possible && !Stopped(); ++step) {
    OfferRepaired(core, sweeps);
    std::vector<double> amounts = Amounts(core, sweeps.rounded().x);
    double norm = 0;
    for (uint32_t r = 0; r < prices.size(); ++r) {
      if (scale[r] == 0) continue;
      double slope = Slope(core.rows[r], prices[r], amounts[r]) / scale[r];
      direction[r] = (1 - kKept) * slope + kKept * direction[r];
      norm += direction[r] * direction[r];
    }
    if (norm < 1e-20) break;
    double missing =
        best_cost_ == kForbidden ? 0.05 * std::abs(best_bound) + 1e-6 : best_cost_ - sweeps.bound();
    for (uint32_t r = 0; r < prices.size(); ++r) {
      if (scale[r] == 0) continue;
      double next = prices[r] + length * missing / norm * direction[r] / scale[r];
      // From one bound to the other only by way of no price; and a bound that is none has none.
      if (next * prices[r] < 0 || std::isinf(Limit(core.rows[r], next))) next = 0;
      prices[r] = std::clamp(next, -highest[r], highest[r]);
    }
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
  if (!KeepsRows(core, kept)) return;
  std::vector<uint32_t> x = Mix(core, kept, other);
  Polish(core, x);
  Offer(x);
}

void Search::OfferRepaired(const Core& core, const Sweeps& sweeps) {
  std::vector<uint32_t> x = sweeps.rounded().x;
  if (Repair(core, x)) {
    Polish(core, x);
    Offer(x);
  }
  if (sweeps.kept().possible) OfferMix(core, sweeps.kept().x, sweeps.rounded().x);
}

}  // namespace heddle
