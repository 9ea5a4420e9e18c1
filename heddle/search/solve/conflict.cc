#include "heddle/search/solve/conflict.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "heddle/search/solve/solve.h"

namespace heddle::search {
namespace {

// Work limit of each search for the nearest amount, as seconds of one core.
constexpr double kNearestSeconds = 1;

bool HasForbidden(const std::vector<double>& costs) {
  return std::ranges::find(costs, kForbidden) != costs.end();
}

class ConflictFinder {
 public:
  ConflictFinder(const PairwiseProblem& problem, const WorkLimit& limit)
      : problem_(problem), limit_(limit), trial_(problem) {
    // Feasibility does not depend on costs.
    for (std::vector<double>& matrix : trial_.matrices) {
      for (double& cost : matrix) cost = cost == kForbidden ? kForbidden : 0;
    }
    for (PairwiseVariable& variable : trial_.variables)
      variable.cost.assign(variable.cost.size(), 0);
  }

  Conflict Run() {
    std::vector<Item> items = AllItems();
    std::vector<Item> found = Smallest({}, false, items);
    Conflict conflict;
    for (const Item& item : found) ListOf(conflict, item.kind).push_back(item.index);
    for (Kind kind : {kBudget, kRestriction, kRelation, kEdge, kVariable})
      std::ranges::sort(ListOf(conflict, kind));
    conflict.smallest = !limit_.Spent();
    conflict.nearest_amount = NearestAmount(conflict, found);
    return conflict;
  }

 private:
  enum Kind { kVariable, kEdge, kRelation, kRestriction, kBudget };
  struct Item {
    Kind kind;
    size_t index;
  };

  static std::vector<size_t>& ListOf(Conflict& conflict, Kind kind) {
    switch (kind) {
      case kVariable: return conflict.variables;
      case kEdge: return conflict.edges;
      case kRelation: return conflict.relations;
      case kRestriction: return conflict.restrictions;
      case kBudget: break;
    }
    return conflict.budgets;
  }

  std::vector<Item> AllItems() const {
    std::vector<Item> items;
    for (VariableId v : problem_.variables.ids()) {
      if (HasForbidden(problem_.variables[v].cost)) items.push_back({kVariable, v.index()});
    }
    std::vector<bool> forbids;
    for (const std::vector<double>& matrix : problem_.matrices)
      forbids.push_back(HasForbidden(matrix));
    for (size_t i = 0; i < problem_.edges.size(); ++i) {
      if (forbids[problem_.edges[i].matrix.index()]) items.push_back({kEdge, i});
    }
    for (size_t i = 0; i < problem_.relations.size(); ++i) items.push_back({kRelation, i});
    for (size_t i = 0; i < problem_.restrictions.size(); ++i) items.push_back({kRestriction, i});
    for (size_t i = 0; i < problem_.budgets.size(); ++i) items.push_back({kBudget, i});
    return items;
  }

  // Restricts `trial_` to these items.
  void Ask(std::span<const Item> items) {
    trial_.edges.clear();
    trial_.relations.clear();
    trial_.restrictions.clear();
    trial_.budgets.clear();
    for (PairwiseVariable& variable : trial_.variables) std::ranges::fill(variable.cost, 0);
    for (const Item& item : items) {
      switch (item.kind) {
        case kVariable: {
          VariableId v(item.index);
          std::ranges::transform(problem_.variables[v].cost, trial_.variables[v].cost.begin(),
                                 [](double cost) { return cost == kForbidden ? cost : 0; });
          break;
        }
        case kEdge: trial_.edges.push_back(problem_.edges[item.index]); break;
        case kRelation: trial_.relations.push_back(problem_.relations[item.index]); break;
        case kRestriction: trial_.restrictions.push_back(problem_.restrictions[item.index]); break;
        case kBudget: trial_.budgets.push_back(problem_.budgets[item.index]); break;
      }
    }
  }

  // Whether these items are known to conflict. If unknown, returns false: the result is then
  // larger, but still conflicts.
  bool Conflicting(std::span<const Item> items) {
    if (limit_.Spent()) return false;
    Ask(items);
    Search search(trial_, {.limit = limit_});
    search.Run();
    return search.finished() && search.best_cost() == kForbidden;
  }

  // Returns a smallest part of `items` that conflicts with `given`. `given` does not conflict
  // unless `added` states that it has grown. (Junker's QuickXplain: it divides in halves, so that
  // few of many items take few trials.)
  std::vector<Item> Smallest(std::vector<Item> given, bool added, std::span<const Item> items) {
    if (added && Conflicting(given)) return {};
    if (items.size() <= 1) return {items.begin(), items.end()};
    std::span<const Item> first = items.first(items.size() / 2);
    std::span<const Item> second = items.subspan(items.size() / 2);
    std::vector<Item> with_second = given;
    with_second.insert(with_second.end(), second.begin(), second.end());
    std::vector<Item> from_first = Smallest(std::move(with_second), true, first);
    given.insert(given.end(), from_first.begin(), from_first.end());
    std::vector<Item> from_second = Smallest(std::move(given), !from_first.empty(), second);
    from_first.insert(from_first.end(), from_second.begin(), from_second.end());
    return from_first;
  }

  // Returns the nearest amount that the rest of the conflict allows.
  double NearestAmount(const Conflict& conflict, std::vector<Item> items) {
    if (conflict.budgets.size() != 1) return NAN;
    const PairwiseBudget& budget = problem_.budgets[conflict.budgets[0]];
    std::erase_if(items, [](const Item& item) { return item.kind == kBudget; });
    // The minimum amount if it exceeds the budget, otherwise the maximum.
    for (double sign : {1.0, -1.0}) {
      Ask(items);
      for (const BudgetTerm& term : budget.terms) {
        std::vector<double>& cost = trial_.variables[term.variable].cost;
        for (size_t k = 0; k < cost.size(); ++k) cost[k] += sign * term.amount[k];
      }
      Search search(trial_, {.limit = WorkLimit(WorkAmount::Work(kNearestSeconds))});
      search.Run();
      if (!search.finished() || search.best_cost() == kForbidden) return NAN;
      double amount = sign * search.best_cost();
      if (sign > 0 ? amount > budget.hi : amount < budget.lo) return amount;
    }
    return NAN;
  }

  const PairwiseProblem& problem_;
  WorkLimit limit_;
  PairwiseProblem trial_;
};

std::string Name(const PairwiseProblem& problem, VariableId v) {
  const std::string& name = problem.variables[v].name;
  return name.empty() ? fmt::format("variable {}", v.index()) : fmt::format("`{}`", name);
}

std::string Kind(const std::string& kind) { return kind.empty() ? "" : fmt::format(" ({})", kind); }

std::string FormatBudget(const PairwiseBudget& budget, double nearest) {
  std::string bounds;
  if (std::isfinite(budget.lo)) bounds += fmt::format("at least {}", budget.lo);
  if (std::isfinite(budget.hi))
    bounds += fmt::format("{}at most {}", bounds.empty() ? "" : ", ", budget.hi);
  if (nearest > budget.hi) bounds += fmt::format("; the least possible is {}", nearest);
  if (nearest < budget.lo) bounds += fmt::format("; the most possible is {}", nearest);
  return fmt::format("budget `{}` ({})", budget.name, bounds);
}

}  // namespace

Conflict FindConflict(const PairwiseProblem& problem, const WorkLimit& limit) {
  return ConflictFinder(problem, limit).Run();
}

std::string Format(const PairwiseProblem& problem, const Conflict& conflict, size_t most) {
  std::vector<std::string> items;
  for (size_t i : conflict.budgets)
    items.push_back(FormatBudget(problem.budgets[i], conflict.nearest_amount));
  for (size_t i : conflict.restrictions) {
    const PairwiseRestriction& r = problem.restrictions[i];
    items.push_back(
        fmt::format("restriction {} of {}{}", i, Name(problem, r.variable), Kind(r.kind)));
  }
  for (size_t i : conflict.relations) {
    const PairwiseRelation& r = problem.relations[i];
    items.push_back(fmt::format("relation {} of {} and {}{}", i, Name(problem, r.u),
                                Name(problem, r.v), Kind(r.kind)));
  }
  for (size_t i : conflict.edges) {
    const PairwiseEdge& e = problem.edges[i];
    items.push_back(
        fmt::format("forbidden pairs of {} and {}", Name(problem, e.u), Name(problem, e.v)));
  }
  for (size_t i : conflict.variables)
    items.push_back(fmt::format("forbidden choices of {}", Name(problem, VariableId(i))));
  std::string out;
  for (size_t i = 0; i < std::min(most, items.size()); ++i)
    out += fmt::format("{}{}", i == 0 ? "" : ", ", items[i]);
  if (items.size() > most) out += fmt::format(" and {} more", items.size() - most);
  return out;
}

}  // namespace heddle::search
