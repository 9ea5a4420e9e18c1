// The price of a budget that makes the bound largest, found step by step.
#pragma once

#include <cmath>
#include <limits>
#include <utility>

#include "heddle/solve/problem/problem.h"
#include "heddle/solve/search/price_bracket.h"

namespace heddle {

class BudgetPrice {
 public:
  explicit BudgetPrice(const PairwiseBudget& budget)
      : bracket_(CoreRow{-kForbidden, budget.hi + BoundTolerance(budget, budget.hi)}, kForbidden) {}

  double now() const { return now_; }

  // Given the bound with the price as it is, what is suggested then, and the best answer so far: sets the next price, or for a last time the
  // best. False if there is none, or that was it.
  bool Step(double bound, PriceLine suggested, PriceLine best) {
    if (steps_ > kMostSteps) return false;
    if (bound > best_bound_) {
      best_bound_ = bound;
      best_ = now_;
    }
    double next = now_;
    if (bracket_.Add(now_, std::move(suggested))) {
      bracket_.AddWithin(now_, std::move(best));
      next = bracket_.Next(now_);
    }
    if (++steps_ > kMostSteps || std::abs(next - now_) <= 1e-7 * now_) {
      steps_ = kMostSteps + 1;
      next = best_;
    }
    return std::exchange(now_, next) != next;
  }

 private:
  static constexpr int kMostSteps = 14;

  PriceBracket bracket_;
  double now_ = 0;
  int steps_ = 0;
  double best_ = 0;
  double best_bound_ = -kForbidden;
};

}  // namespace heddle
