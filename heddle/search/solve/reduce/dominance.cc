// Removes dominated choices: another choice is never worse, whatever the neighbors choose.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "heddle/search/solve/reduce/min_plus.h"
#include "heddle/search/solve/reduce/reduce.h"

namespace heddle::search {
namespace {

// Maximum number of comparisons for one variable.
constexpr size_t kMostWork = 4'000'000;

class Dominance {
 public:
  Dominance(const Core& core, uint32_t v)
      : core_(core), variable_(core.variables[v]), size_(variable_.size()) {
    for (uint32_t e : variable_.edges) {
      starts_.push_back(width_);
      width_ += core_.variables[core_.Other(e, v)].size();
    }
    starts_.push_back(width_);
    // The costs of a choice for all choices of the neighbors, in one row; and transposed.
    profile_.resize(width_ * size_);
    columns_.resize(width_ * size_);
    for (size_t i = 0; i < variable_.edges.size(); ++i) {
      EdgeView cost = core_.View(variable_.edges[i], v);
      size_t others = starts_[i + 1] - starts_[i];
      for (size_t k = 0; k < size_; ++k) {
        double* row = &profile_[k * width_ + starts_[i]];
        for (size_t j = 0; j < others; ++j) row[j] = cost(k, j);
      }
      for (size_t j = 0; j < others; ++j) {
        double* column = &columns_[(starts_[i] + j) * size_];
        for (size_t k = 0; k < size_; ++k) column[k] = cost(k, j);
      }
    }
  }

  size_t work() const { return work_ + 2 * profile_.size(); }

  // Marks dominated choices. Returns their number.
  size_t Mark(uint8_t* keep) {
    size_t count = 0;
    for (size_t k = 0; k < size_; ++k) {
      FindCheapest(k);
      CompareThere(k);
      work_ += size_ * starts_.size();
      if (work_ > kMostWork) return count;
      for (size_t other = 0; other < size_; ++other) {
        if (other == k || keep[other] == 0 || !(there_[other] <= 0)) continue;
        if (!TakesNoMore(k, other) || !NeverWorse(k, other)) continue;
        keep[k] = 0;
        ++count;
        break;
      }
      if (work_ > kMostWork) return count;
    }
    return count;
  }

 private:
  // Finds the cheapest partner of a choice at each neighbor: other choices are least likely to be
  // better there.
  void FindCheapest(size_t k) {
    const double* row = profile_.data() + k * width_;
    cheapest_.clear();
    for (size_t i = 0; i + 1 < starts_.size(); ++i)
      cheapest_.push_back(starts_[i] + FirstLeast(row + starts_[i], starts_[i + 1] - starts_[i]));
  }

  // Computes how much more each other choice costs there.
  void CompareThere(size_t k) {
    there_.resize(size_);
    for (size_t other = 0; other < size_; ++other)
      there_[other] = variable_.cost[other] - variable_.cost[k];
    for (size_t at : cheapest_) {
      const double* column = columns_.data() + at * size_;
      AddDifference(column, column[k], size_, there_.data());
    }
  }

  bool TakesNoMore(size_t k, size_t other) const {
    for (const CoreTerm& term : variable_.terms) {
      const CoreRow& row = core_.rows[term.row];
      if ((std::isfinite(row.hi) && term.amount[other] > term.amount[k]) ||
          (std::isfinite(row.lo) && term.amount[other] < term.amount[k]))
        return false;
    }
    return true;
  }

  // Compares at all choices of the neighbors. Starts with the cost where `k` is cheapest, and stops
  // once it is too large.
  bool NeverWorse(size_t k, size_t other) {
    const double* a = profile_.data() + k * width_;
    const double* b = profile_.data() + other * width_;
    double difference = there_[other];
    for (size_t i = 0; i + 1 < starts_.size(); ++i) {
      work_ += starts_[i + 1] - starts_[i];
      double most = LargestDifference(a + starts_[i], b + starts_[i], starts_[i + 1] - starts_[i]);
      if (most == kForbidden) return false;
      difference += most - (b[cheapest_[i]] - a[cheapest_[i]]);
      if (difference > 0) return false;
    }
    return true;
  }

  const Core& core_;
  const CoreVariable& variable_;
  size_t size_;
  std::vector<size_t> starts_;
  size_t width_ = 0;
  std::vector<double> profile_;
  std::vector<double> columns_;
  std::vector<size_t> cheapest_;
  std::vector<double> there_;
  size_t work_ = 0;
};

// Without neighbors, and with at most one row, avoids comparing all pairs: in order of amounts, a
// choice is dominated if it is not cheaper than all before it.
bool MarkInOrder(const Core& core, const CoreVariable& variable, uint8_t* keep, size_t& count) {
  if (!variable.edges.empty() || variable.terms.size() != 1) return false;
  const CoreTerm& term = variable.terms[0];
  const CoreRow& row = core.rows[term.row];
  if (std::isfinite(row.lo) && std::isfinite(row.hi)) return false;
  double sign = std::isfinite(row.hi) ? 1 : -1;
  std::vector<uint32_t> order(variable.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::sort(order, {}, [&](uint32_t k) {
    return std::tuple(sign * term.amount[k], variable.cost[k], k);
  });
  double least = HUGE_VAL;
  for (uint32_t k : order) {
    if (variable.cost[k] < least) {
      least = variable.cost[k];
    } else {
      keep[k] = 0;
      ++count;
    }
  }
  return true;
}

}  // namespace

bool RemoveDominated(Core& core, const ReduceOptions& options, ReduceCounts& counts) {
  std::vector<uint8_t> keep(core.ChoiceCount(), 1);
  size_t removed = 0;
  size_t first = 0;
  for (uint32_t v = 0; v < core.variables.size() && !options.limit.Spent(); ++v) {
    CoreVariable& variable = core.variables[v];
    if (variable.size() > 1 && variable.unchecked &&
        !MarkInOrder(core, variable, &keep[first], removed)) {
      Dominance dominance(core, v);
      removed += dominance.Mark(&keep[first]);
      options.limit.Spend(dominance.work());
    }
    options.limit.Spend(variable.size());
    variable.unchecked = false;
    first += variable.size();
  }
  if (removed == 0) return false;
  core.Keep(keep);
  counts.dominated += removed;
  return true;
}

}  // namespace heddle::search
