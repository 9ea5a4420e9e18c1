// Finds the price of one row at which the bound is highest.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "heddle/search/solve/reduce/core.h"

namespace heddle::search {

// An assignment as a line over the price of one row: `cost` plus the price times the excess over
// the limit.
struct PriceLine {
  double cost;
  double amount;
  std::vector<uint32_t> x;
};

// Returns the violation of an amount: its distance beyond the bound that the price is for, or
// without a price, beyond either bound.
inline double Slope(const CoreRow& row, double price, double amount) {
  if (price > 0 || (price == 0 && amount > row.hi)) return amount - row.hi;
  if (price < 0 || (price == 0 && amount < row.lo)) return amount - row.lo;
  return 0;
}

// Searches for the price of a row at which the bound is highest. It is where the lines of two
// assignments cross, one that exceeds the row and one that does not.
class PriceSearch {
 public:
  // Prices are at most `highest`, and start at `price`.
  PriceSearch(const CoreRow& row, double highest, double price)
      : row_(row), highest_(highest), price_(price), best_price_(price) {}

  // The next price to try, and the best so far.
  double price() const { return price_; }
  double best_price() const { return best_price_; }
  // The cheapest known assignments on both sides.
  const std::optional<PriceLine>& over() const { return over_; }
  const std::optional<PriceLine>& within() const { return within_; }

  // Takes the bound at the current price, the assignment that sweeps suggest there, and, if any, an
  // assignment that keeps the row. Returns false if no other price is worth a try.
  bool Step(double bound, PriceLine suggested, std::optional<PriceLine> kept) {
    constexpr int kMostSteps = 14;
    if (bound > best_bound_) {
      best_bound_ = bound;
      best_price_ = price_;
    }
    if (steps_++ == kMostSteps || !Add(std::move(suggested))) return false;
    if (kept) AddWithin(*std::move(kept));
    double next = Next();
    bool moves = std::abs(next - price_) > 1e-7 * std::abs(price_);
    price_ = next;
    return moves;
  }

 private:
  double limit() const { return upper_ ? row_.hi : row_.lo; }

  // Returns false if the assignment keeps the row without a price.
  bool Add(PriceLine line) {
    double slope = Slope(row_, price_, line.amount);
    if (price_ == 0 && slope == 0) return false;
    // Lines for one bound of the row do not apply to the other.
    bool upper = price_ > 0 || (price_ == 0 && slope > 0);
    if (upper != upper_) {
      upper_ = upper;
      reach_ = kFirstReach;
      over_.reset();
      within_.reset();
    }
    bool overruns = upper_ ? slope > 0 : slope < 0;
    (overruns ? over_ : within_) = std::move(line);
    return true;
  }
  // Takes an assignment within the row, if it is better at this price than the known one.
  void AddWithin(PriceLine line) {
    auto value = [&](const PriceLine& l) { return l.cost + price_ * (l.amount - limit()); };
    if (!within_ || value(line) < value(*within_)) within_ = std::move(line);
  }

  // Returns the crossing of the two lines, or increasingly distant prices while one line is
  // unknown.
  double Next() {
    double next = 0;
    if (over_ && within_) {
      next = (within_->cost - over_->cost) / (over_->amount - within_->amount);
      if (upper_ ? next < 0 : next > 0) next = 0;
    } else if (price_ == 0) {
      next = (1e-3 * std::abs(over_->cost) + 1e-6) / (over_->amount - limit());
    } else {
      next = over_ ? price_ * (1 + reach_) : price_ / (1 + reach_);
      reach_ *= 4;
    }
    return std::clamp(next, -highest_, highest_);
  }

  static constexpr double kFirstReach = 0.05;

  CoreRow row_;
  double highest_;
  // The bound of the row that the lines are for.
  bool upper_ = true;
  double reach_ = kFirstReach;
  std::optional<PriceLine> over_ = {};
  std::optional<PriceLine> within_ = {};
  double price_;
  int steps_ = 0;
  double best_price_;
  double best_bound_ = -kForbidden;
};

}  // namespace heddle::search
