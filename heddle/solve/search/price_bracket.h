// The price of one row: what a unit of it must cost for the bound to be largest.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "heddle/solve/reduce/core.h"

namespace heddle {

// An assignment as a line over the price of one row: it costs `cost` plus the price times what it takes beyond the limit.
struct PriceLine {
  double cost;
  double amount;
  std::vector<uint32_t> x;
};

// What is wrong with an amount: how far it is beyond the bound that the price is for, or, without a price, beyond either.
inline double Slope(const CoreRow& row, double price, double amount) {
  if (price > 0 || (price == 0 && amount > row.hi)) return amount - row.hi;
  if (price < 0 || (price == 0 && amount < row.lo)) return amount - row.lo;
  return 0;
}

// The best price of one row is where the lines of two assignments cross, one that overruns the row and one that does not. This
// holds the two that are known.
struct PriceBracket {
  PriceBracket(const CoreRow& row, double highest, bool upper = true)
      : row(row), highest(highest), upper(upper) {}

  // What sweeps suggest at a price. False if nothing is wrong without a price.
  bool Add(double price, PriceLine line) {
    double slope = Slope(row, price, line.amount);
    if (price == 0 && slope == 0) return false;
    // Lines for one bound of the row say nothing about the other.
    if (upper != (price > 0 || (price == 0 && slope > 0)))
      *this = PriceBracket(row, highest, !upper);
    bool overruns = upper ? slope > 0 : slope < 0;
    (overruns ? over : within) = std::move(line);
    return true;
  }
  // An assignment within the row, if it is better at this price than the one that is known.
  void AddWithin(double price, PriceLine line) {
    auto value = [&](const PriceLine& l) { return l.cost + price * (l.amount - limit()); };
    if (!within || value(line) < value(*within)) within = std::move(line);
  }

  // Where to look next: where the two lines cross, or further and further away as long as one of them is not known.
  double Next(double price) {
    double next = 0;
    if (over && within) {
      next = (within->cost - over->cost) / (over->amount - within->amount);
      if (upper ? next < 0 : next > 0) next = 0;
    } else if (price == 0) {
      next = (1e-3 * std::abs(over->cost) + 1e-6) / (over->amount - limit());
    } else {
      next = over ? price * (1 + reach) : price / (1 + reach);
      reach *= 4;
    }
    return std::clamp(next, -highest, highest);
  }

  double limit() const { return upper ? row.hi : row.lo; }

  CoreRow row;
  double highest;
  // Which bound of the row the lines are for.
  bool upper;
  double reach = 0.05;
  std::optional<PriceLine> over = {};
  std::optional<PriceLine> within = {};
};

}  // namespace heddle
