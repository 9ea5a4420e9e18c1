// Choices that another is never worse than, whatever the neighbours choose.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <tuple>

#include "heddle/solve/reduce/reduce.h"

namespace heddle {
namespace {

// Comparisons for one variable.
constexpr size_t kMostWork = 4'000'000;

class Dominance {
 public:
  Dominance(const Core& core, uint32_t v) : core_(core), variable_(core.variables[v]) {
    for (uint32_t e : variable_.edges) {
      starts_.push_back(width_);
      width_ += core_.variables[core_.Other(e, v)].size();
    }
    starts_.push_back(width_);
    // All that a choice may cost at its neighbours, in one row.
    profile_.resize(width_ * variable_.size());
    for (size_t i = 0; i < variable_.edges.size(); ++i) {
      EdgeView cost = core_.View(variable_.edges[i], v);
      for (size_t k = 0; k < variable_.size(); ++k) {
        double* row = &profile_[k * width_];
        for (size_t j = starts_[i]; j < starts_[i + 1]; ++j) row[j] = cost(k, j - starts_[i]);
      }
    }
    FindCheapest();
  }

  // Marks what is dominated; how many that are.
  size_t Mark(uint8_t* keep) {
    size_t count = 0;
    size_t size = variable_.size();
    for (size_t k = 0; k < size; ++k) {
      for (size_t other = 0; other < size; ++other) {
        if (other == k || keep[other] == 0) continue;
        work_ += starts_.size();
        if (work_ > kMostWork) return count;
        if (!MayReplace(k, other) || !NeverWorse(k, other)) continue;
        keep[k] = 0;
        ++count;
        break;
      }
    }
    return count;
  }

 private:
  // For each choice, the cheapest partner at each neighbour: there it is hardest to beat.
  void FindCheapest() {
    size_t edges = starts_.size() - 1;
    cheapest_.resize(edges * variable_.size());
    for (size_t k = 0; k < variable_.size(); ++k) {
      const double* row = profile_.data() + k * width_;
      for (size_t i = 0; i < edges; ++i)
        cheapest_[k * edges + i] =
            static_cast<size_t>(std::min_element(row + starts_[i], row + starts_[i + 1]) - row);
    }
  }

  // Whether `other` takes no more of any row, and costs no more where `k` is cheapest.
  bool MayReplace(size_t k, size_t other) const {
    for (const CoreTerm& term : variable_.terms) {
      const CoreRow& row = core_.rows[term.row];
      if ((std::isfinite(row.hi) && term.amount[other] > term.amount[k]) ||
          (std::isfinite(row.lo) && term.amount[other] < term.amount[k]))
        return false;
    }
    double difference = variable_.cost[other] - variable_.cost[k];
    size_t edges = starts_.size() - 1;
    for (size_t i = 0; i < edges; ++i) {
      size_t at = cheapest_[k * edges + i];
      difference += profile_[other * width_ + at] - profile_[k * width_ + at];
    }
    return difference <= 0;
  }

  bool NeverWorse(size_t k, size_t other) {
    const double* a = profile_.data() + k * width_;
    const double* b = profile_.data() + other * width_;
    double difference = variable_.cost[other] - variable_.cost[k];
    for (size_t i = 0; i + 1 < starts_.size(); ++i) {
      double most = -HUGE_VAL;
      for (size_t j = starts_[i]; j < starts_[i + 1]; ++j) {
        // Forbidden for both gives no number, and the comparison passes it over.
        double more = b[j] - a[j];
        most = more > most ? more : most;
      }
      difference += most;
      if (difference == kForbidden) return false;
    }
    work_ += width_;
    return difference <= 0;
  }

  const Core& core_;
  const CoreVariable& variable_;
  std::vector<size_t> starts_;
  size_t width_ = 0;
  std::vector<double> profile_;
  std::vector<size_t> cheapest_;
  size_t work_ = 0;
};

// Without neighbours, and with one row at most, it takes no comparison of all with all: in order of what they take, choices that
// are not cheaper than all before them are dominated.
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
  for (uint32_t v = 0; v < core.variables.size() && !options.deadline.Passed(); ++v) {
    CoreVariable& variable = core.variables[v];
    if (variable.size() > 1 && variable.unchecked &&
        !MarkInOrder(core, variable, &keep[first], removed))
      removed += Dominance(core, v).Mark(&keep[first]);
    variable.unchecked = false;
    first += variable.size();
  }
  if (removed == 0) return false;
  core.Keep(keep);
  counts.dominated += removed;
  return true;
}

}  // namespace heddle
