#include "heddle/search/solve/engine/round.h"

#include <algorithm>
#include <cmath>

namespace heddle::search {
namespace {

constexpr size_t kRepairWork = 1'000'000;
// Work per choice: its edges and its amounts.
constexpr size_t kRepairOfChoice = 8;

// The amounts of an assignment in all rows, as it changes.
class RowUse {
 public:
  RowUse(const Core& core, const std::vector<uint32_t>& x) : core_(core), used_(Amounts(core, x)) {
    for (size_t r = 0; r < used_.size(); ++r) broken_ += Excess(r, used_[r]) > 0;
  }

  bool Keeps() const { return broken_ == 0; }
  // Returns the distance of `used` beyond the bounds of a row.
  double Excess(size_t r, double used) const {
    return std::max({0.0, used - core_.rows[r].hi, core_.rows[r].lo - used});
  }
  double used(size_t r) const { return used_[r]; }
  void Change(uint32_t v, uint32_t from, uint32_t to) {
    for (const CoreTerm& term : core_.variables[v].terms) {
      double& used = used_[term.row];
      broken_ -= Excess(term.row, used) > 0;
      used += term.amount[to] - term.amount[from];
      broken_ += Excess(term.row, used) > 0;
    }
  }

 private:
  const Core& core_;
  std::vector<double> used_;
  // Number of rows beyond their bounds.
  size_t broken_ = 0;
};

// Computes the cost of each choice of a variable, given the other variables.
void ChoiceCosts(const Core& core, uint32_t v, const std::vector<uint32_t>& x,
                 std::vector<double>& cost) {
  cost = core.variables[v].cost;
  for (uint32_t e : core.variables[v].edges) {
    EdgeView view = core.View(e, v);
    uint32_t taken = x[core.Other(e, v)];
    for (uint32_t k = 0; k < cost.size(); ++k) cost[k] += view(k, taken);
  }
}

// Connected variables that differ between two assignments.
struct Part {
  std::vector<uint32_t> variables;
  double saved = 0;
  // The sum over all rows, in units of their largest steps.
  double taken = 0;
};

class Mixer {
 public:
  Mixer(const Core& core, const std::vector<uint32_t>& kept, const std::vector<uint32_t>& other)
      : core_(core), kept_(kept), other_(other), steps_(LargestSteps(core)), seen_(kept.size()) {}

  std::vector<uint32_t> Run() {
    std::vector<Part> parts;
    for (uint32_t v = 0; v < kept_.size(); ++v) {
      if (!seen_[v] && Differs(v)) parts.push_back(MakePart(v));
    }
    std::ranges::stable_sort(
        parts, [](const Part& a, const Part& b) { return a.saved * b.taken > b.saved * a.taken; });
    std::vector<uint32_t> x = kept_;
    RowUse use(core_, x);
    for (const Part& part : parts) {
      if (!(part.saved > 0)) continue;
      for (uint32_t v : part.variables) use.Change(v, kept_[v], other_[v]);
      if (use.Keeps()) {
        for (uint32_t v : part.variables) x[v] = other_[v];
      } else {
        for (uint32_t v : part.variables) use.Change(v, other_[v], kept_[v]);
      }
    }
    return x;
  }

 private:
  bool Differs(uint32_t v) const { return !core_.variables[v].gone() && kept_[v] != other_[v]; }

  Part MakePart(uint32_t start) {
    Part part{{start}};
    seen_[start] = true;
    for (size_t i = 0; i < part.variables.size(); ++i) {
      for (uint32_t e : core_.variables[part.variables[i]].edges) {
        uint32_t next = core_.Other(e, part.variables[i]);
        if (seen_[next] || !Differs(next)) continue;
        seen_[next] = true;
        part.variables.push_back(next);
      }
    }
    for (uint32_t v : part.variables) {
      part.saved += CostAt(v, kept_) - CostAt(v, other_);
      for (const CoreTerm& term : core_.variables[v].terms)
        part.taken += std::abs(term.amount[other_[v]] - term.amount[kept_[v]]) / steps_[term.row];
    }
    return part;
  }

  // Returns the cost of a variable and its edges. Edges inside the part count half, because both
  // ends count them. Beyond the part, the two assignments agree.
  double CostAt(uint32_t v, const std::vector<uint32_t>& x) const {
    double cost = core_.variables[v].cost[x[v]];
    for (uint32_t e : core_.variables[v].edges) {
      uint32_t o = core_.Other(e, v);
      cost += core_.View(e, v)(x[v], x[o]) * (Differs(o) ? 0.5 : 1);
    }
    return cost;
  }

  const Core& core_;
  const std::vector<uint32_t>& kept_;
  const std::vector<uint32_t>& other_;
  std::vector<double> steps_;
  std::vector<bool> seen_;
};

}  // namespace

std::vector<double> Amounts(const Core& core, const std::vector<uint32_t>& x) {
  std::vector<double> amounts(core.rows.size());
  for (size_t v = 0; v < core.variables.size(); ++v) {
    for (const CoreTerm& term : core.variables[v].terms) amounts[term.row] += term.amount[x[v]];
  }
  return amounts;
}

std::vector<double> LargestSteps(const Core& core) {
  std::vector<double> steps(core.rows.size());
  for (const CoreVariable& variable : core.variables) {
    for (const CoreTerm& term : variable.terms) {
      auto [least, most] = std::ranges::minmax(term.amount);
      steps[term.row] = std::max(steps[term.row], most - least);
    }
  }
  return steps;
}

bool KeepsRows(const Core& core, const std::vector<uint32_t>& x) { return RowUse(core, x).Keeps(); }

std::vector<uint32_t> Greedy(const Core& core) {
  std::vector<uint32_t> x(core.variables.size());
  std::vector<double> cost;
  for (uint32_t v = 0; v < core.variables.size(); ++v) {
    if (core.variables[v].gone()) continue;
    cost = core.variables[v].cost;
    for (uint32_t e : core.variables[v].edges) {
      uint32_t other = core.Other(e, v);
      if (other > v) continue;
      EdgeView view = core.View(e, v);
      for (uint32_t k = 0; k < cost.size(); ++k) cost[k] += view(k, x[other]);
    }
    x[v] = static_cast<uint32_t>(std::ranges::min_element(cost) - cost.begin());
  }
  return x;
}

std::vector<uint32_t> Mix(const Core& core, const std::vector<uint32_t>& kept,
                          const std::vector<uint32_t>& other) {
  return Mixer(core, kept, other).Run();
}

bool Repair(const Core& core, const WorkLimit& limit, std::vector<uint32_t>& x) {
  std::vector<double> steps = LargestSteps(core);
  RowUse use(core, x);
  std::vector<double> cost;
  // Each change examines all choices, which limits the number of changes.
  size_t choices = core.ChoiceCount();
  size_t most_changes = 1 + kRepairWork / (1 + choices);
  for (size_t change = 0; change < most_changes; ++change) {
    if (use.Keeps()) return true;
    limit.Spend(kRepairOfChoice * choices);
    double best_rate = 0;
    uint32_t best = 0;
    uint32_t to = 0;
    for (uint32_t v = 0; v < core.variables.size(); ++v) {
      const CoreVariable& variable = core.variables[v];
      if (variable.terms.empty()) continue;
      ChoiceCosts(core, v, x, cost);
      for (uint32_t k = 0; k < variable.size(); ++k) {
        if (cost[k] == kForbidden) continue;
        double nearer = 0;
        for (const CoreTerm& term : variable.terms) {
          double used = use.used(term.row);
          double then = used + term.amount[k] - term.amount[x[v]];
          nearer += (use.Excess(term.row, used) - use.Excess(term.row, then)) / steps[term.row];
        }
        // Among choices that cost nothing or less, prefers the ones with the largest reduction of
        // the excess.
        double rate = nearer / std::max(1e-9 * std::abs(cost[x[v]]) + 1e-300, cost[k] - cost[x[v]]);
        if (nearer <= 1e-12 || rate <= best_rate) continue;
        best_rate = rate;
        best = v;
        to = k;
      }
    }
    if (best_rate == 0) return false;
    use.Change(best, x[best], to);
    x[best] = to;
  }
  return use.Keeps();
}

void Polish(const Core& core, std::vector<uint32_t>& x) {
  constexpr int kMostRounds = 4;
  RowUse use(core, x);
  std::vector<double> cost;
  bool changed = true;
  for (int round = 0; changed && round < kMostRounds; ++round) {
    changed = false;
    for (uint32_t v = 0; v < core.variables.size(); ++v) {
      if (core.variables[v].size() < 2) continue;
      ChoiceCosts(core, v, x, cost);
      uint32_t best = x[v];
      for (uint32_t k = 0; k < cost.size(); ++k) {
        if (!(cost[k] < cost[best])) continue;
        use.Change(v, x[v], k);
        if (use.Keeps()) best = k;
        use.Change(v, k, x[v]);
      }
      if (best == x[v]) continue;
      use.Change(v, x[v], best);
      x[v] = best;
      changed = true;
    }
  }
}

}  // namespace heddle::search
