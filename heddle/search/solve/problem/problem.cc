#include "heddle/search/solve/problem/problem.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "heddle/core/base/text.h"

namespace heddle::search {
namespace {

// A sum with error compensation, which is as exact as its terms.
class Sum {
 public:
  void Add(double x) {
    double sum = sum_ + x;
    error_ += std::abs(sum_) >= std::abs(x) ? (sum_ - sum) + x : (x - sum) + sum_;
    sum_ = sum;
  }
  double value() const { return sum_ + error_; }

 private:
  double sum_ = 0;
  double error_ = 0;
};

std::string Count(size_t n) { return WithCommas(static_cast<int64_t>(n)); }

class ErrorFinder {
 public:
  explicit ErrorFinder(const PairwiseProblem& problem) : problem_(problem) {}

  Diagnostics Run() {
    CheckVariables();
    for (MatrixId m : problem_.matrices.ids())
      CheckCosts(problem_.matrices[m], fmt::format("matrix {}", m.index()));
    CheckEdges();
    if (!problem_.moves.empty() && !(problem_.edges.empty() && problem_.relations.empty()))
      Report("a problem with moves has no edges and no relations");
    for (size_t i = 0; i < problem_.moves.size(); ++i) CheckMove(i);
    for (size_t i = 0; i < problem_.relations.size(); ++i) CheckRelation(i);
    for (size_t i = 0; i < problem_.restrictions.size(); ++i) CheckRestriction(i);
    std::set<std::string_view> names;
    for (const PairwiseBudget& budget : problem_.budgets) {
      if (!names.insert(budget.name).second) Report("budget `{}` is given twice", budget.name);
      CheckBudget(budget);
    }
    if (diagnostics_.empty()) CheckSize();
    if (count_ > kMost)
      diagnostics_.push_back(MakeDiagnostic(Diag::kManyMistakes, "{} more mistakes are not shown",
                                            Count(count_ - kMost)));
    return std::move(diagnostics_);
  }

 private:
  static constexpr size_t kMost = 32;

  template <typename... Args>
  void Report(fmt::format_string<Args...> format, Args&&... args) {
    if (++count_ <= kMost)
      diagnostics_.push_back(MakeDiagnostic(Diag::kProblem, format, std::forward<Args>(args)...));
  }

  size_t choices(VariableId v) const { return problem_.variables[v].cost.size(); }
  std::string Name(VariableId v) const {
    const std::string& name = problem_.variables[v].name;
    return name.empty() ? fmt::format("variable {}", v.index()) : fmt::format("`{}`", name);
  }
  bool Known(VariableId v, const std::string& where) {
    if (v.index() < problem_.variables.size()) return true;
    Report("{} names variable {} of {}", where, v.index(), problem_.variables.size());
    return false;
  }
  bool KnownPair(VariableId u, VariableId v, const std::string& where) {
    bool known = Known(u, where) && Known(v, where);
    if (known && u == v) Report("{} ties {} to itself", where, Name(u));
    return known && u != v;
  }

  void CheckCosts(const std::vector<double>& costs, const std::string& where) {
    for (size_t k = 0; k < costs.size(); ++k) {
      if (costs[k] != kForbidden && !(std::abs(costs[k]) <= kLargestNumber))
        return Report("entry {} of {} is {}, not a number up to {} in size", k, where, costs[k],
                      kLargestNumber);
    }
  }

  void CheckVariables() {
    for (VariableId v : problem_.variables.ids()) {
      if (choices(v) == 0) Report("variable {} {} has no choices", v.index(), Name(v));
      CheckCosts(problem_.variables[v].cost, fmt::format("the costs of {}", Name(v)));
    }
  }

  void CheckEdges() {
    std::vector<std::pair<uint64_t, size_t>> pairs;
    for (size_t i = 0; i < problem_.edges.size(); ++i) {
      const PairwiseEdge& edge = problem_.edges[i];
      std::string where = fmt::format("edge {}", i);
      if (!KnownPair(edge.u, edge.v, where)) continue;
      if (edge.matrix.index() >= problem_.matrices.size()) {
        Report("{} names matrix {} of {}", where, edge.matrix.index(), problem_.matrices.size());
        continue;
      }
      size_t entries = problem_.matrices[edge.matrix].size();
      size_t wanted = choices(edge.u) * choices(edge.v);
      if (entries != wanted)
        Report("{} of {} and {} needs {} x {} = {} entries, matrix {} has {}", where, Name(edge.u),
               Name(edge.v), choices(edge.u), choices(edge.v), wanted, edge.matrix.index(),
               entries);
      uint64_t a = std::min(edge.u, edge.v).index();
      uint64_t b = std::max(edge.u, edge.v).index();
      pairs.emplace_back(a << 32 | b, i);
    }
    std::ranges::sort(pairs);
    for (size_t i = 1; i < pairs.size(); ++i) {
      if (pairs[i].first == pairs[i - 1].first)
        Report("edges {} and {} join the same two variables; add their matrices",
               pairs[i - 1].second, pairs[i].second);
    }
  }

  void CheckMove(size_t i) {
    const SharedMove& move = problem_.moves[i];
    std::string where = fmt::format("move {}", i);
    auto fits = [&](uint32_t v, size_t count) {
      if (!Known(VariableId(v), where)) return false;
      if (count == choices(VariableId(v))) return true;
      Report("{} has {} choices of {}, which has {}", where, count, Name(VariableId(v)),
             choices(VariableId(v)));
      return false;
    };
    bool possible = fits(move.from, move.sources.size());
    for (const SharedReader& reader : move.readers)
      possible = fits(reader.variable(), reader.choices()) && possible;
    if (possible) CheckCosts(move.prices->all, where);
  }

  void CheckRelation(size_t i) {
    const PairwiseRelation& relation = problem_.relations[i];
    std::string where = fmt::format("relation {}", i);
    if (!KnownPair(relation.u, relation.v, where)) return;
    for (auto [a, b] : relation.pairs) {
      if (a >= choices(relation.u) || b >= choices(relation.v))
        return Report("{} has the pair ({}, {}); {} has {} choices and {} has {}", where, a, b,
                      Name(relation.u), choices(relation.u), Name(relation.v), choices(relation.v));
    }
    auto pairs = relation.pairs;
    std::ranges::sort(pairs);
    auto twice = std::ranges::adjacent_find(pairs);
    if (twice != pairs.end())
      Report("{} has the pair ({}, {}) twice", where, twice->first, twice->second);
  }

  void CheckRestriction(size_t i) {
    const PairwiseRestriction& restriction = problem_.restrictions[i];
    std::string where = fmt::format("restriction {}", i);
    VariableId v = restriction.variable;
    if (!Known(v, where)) return;
    std::vector<bool> seen(choices(v));
    for (uint32_t k : restriction.allowed) {
      if (k >= choices(v))
        return Report("{} allows choice {} of {}, which has {}", where, k, Name(v), choices(v));
      if (seen[k]) return Report("{} allows choice {} of {} twice", where, k, Name(v));
      seen[k] = true;
    }
  }

  void CheckBudget(const PairwiseBudget& budget) {
    std::string where = fmt::format("budget `{}`", budget.name);
    if (!(budget.lo <= budget.hi))
      Report("{} has no amounts between lo {} and hi {}", where, budget.lo, budget.hi);
    for (double bound : {budget.lo, budget.hi}) {
      if (std::isfinite(bound) && std::abs(bound) > kLargestNumber)
        Report("{} has the bound {}, at most {} in size", where, bound, kLargestNumber);
    }
    std::vector<uint32_t> variables;
    for (const BudgetTerm& term : budget.terms) {
      if (!Known(term.variable, where)) continue;
      variables.push_back(term.variable.index());
      if (term.amount.size() != choices(term.variable))
        Report("{} has {} amounts for {}, which has {} choices", where, term.amount.size(),
               Name(term.variable), choices(term.variable));
      for (double amount : term.amount) {
        if (std::abs(amount) <= kLargestNumber) continue;
        Report("{} has the amount {} for {}, not a number up to {} in size", where, amount,
               Name(term.variable), kLargestNumber);
        break;
      }
    }
    std::ranges::sort(variables);
    auto twice = std::ranges::adjacent_find(variables);
    if (twice != variables.end())
      Report("{} has two terms for {}", where, Name(VariableId(*twice)));
  }

  void CheckSize() {
    ProblemSize size = SizeOf(problem_);
    if (size.choices > kMostChoices)
      return Report("{} choices, at most {}", Count(size.choices), Count(kMostChoices));
    // A relation with few pairs can still be a large matrix.
    for (const PairwiseRelation& relation : problem_.relations) {
      if (size.entries <= kMostEntries) size.entries += choices(relation.u) * choices(relation.v);
    }
    if (size.entries > kMostEntries)
      Report("{} matrix entries or more over all edges and relations, at most {}",
             Count(size.entries), Count(kMostEntries));
  }

  const PairwiseProblem& problem_;
  Diagnostics diagnostics_;
  size_t count_ = 0;
};

bool Related(const PairwiseRelation& relation, const std::vector<uint32_t>& x) {
  return std::ranges::find(relation.pairs,
                           std::pair(x[relation.u.index()], x[relation.v.index()])) !=
         relation.pairs.end();
}

bool Allowed(const PairwiseRestriction& restriction, const std::vector<uint32_t>& x) {
  return std::ranges::find(restriction.allowed, x[restriction.variable.index()]) !=
         restriction.allowed.end();
}

}  // namespace

ProblemSize SizeOf(const PairwiseProblem& problem) {
  ProblemSize size;
  size.variables = problem.variables.size();
  size.edges = problem.edges.size();
  for (const PairwiseVariable& variable : problem.variables) size.choices += variable.cost.size();
  for (const PairwiseEdge& edge : problem.edges)
    size.entries += problem.variables[edge.u].cost.size() * problem.variables[edge.v].cost.size();
  for (const SharedMove& move : problem.moves) {
    size.edges += move.readers.size();
    for (const SharedReader& reader : move.readers)
      size.entries += move.sources.size() * reader.choices();
  }
  return size;
}

Diagnostics FindErrors(const PairwiseProblem& problem) { return ErrorFinder(problem).Run(); }

double Cost(const PairwiseProblem& problem, const std::vector<uint32_t>& x) {
  for (const PairwiseRelation& relation : problem.relations) {
    if (!Related(relation, x)) return kForbidden;
  }
  for (const PairwiseRestriction& restriction : problem.restrictions) {
    if (!Allowed(restriction, x)) return kForbidden;
  }
  Sum sum;
  for (VariableId v : problem.variables.ids()) {
    double cost = problem.variables[v].cost[x[v.index()]];
    if (cost == kForbidden) return kForbidden;
    sum.Add(cost);
  }
  for (const PairwiseEdge& edge : problem.edges) {
    size_t columns = problem.variables[edge.v].cost.size();
    double cost = problem.matrices[edge.matrix][x[edge.u.index()] * columns + x[edge.v.index()]];
    if (cost == kForbidden) return kForbidden;
    sum.Add(cost);
  }
  for (const SharedMove& move : problem.moves) {
    double cost = move.Cost(x);
    if (cost == kForbidden) return kForbidden;
    sum.Add(cost);
  }
  return sum.value();
}

double Amount(const PairwiseBudget& budget, const std::vector<uint32_t>& x) {
  Sum sum;
  for (const BudgetTerm& term : budget.terms) sum.Add(term.amount[x[term.variable.index()]]);
  return sum.value();
}

double BoundTolerance(const PairwiseBudget& budget, double bound) {
  if (std::isinf(bound)) return 0;
  double largest = 0;
  for (const BudgetTerm& term : budget.terms) {
    auto [least, most] = std::ranges::minmax(term.amount);
    largest += std::max(std::abs(least), std::abs(most));
  }
  return 1e-9 * std::max(1.0, std::abs(bound)) + 1e-14 * largest;
}

bool Keeps(const PairwiseBudget& budget, double amount) {
  return amount >= budget.lo - BoundTolerance(budget, budget.lo) &&
         amount <= budget.hi + BoundTolerance(budget, budget.hi);
}

PairwiseBudget KeepChoices(const PairwiseBudget& budget, const ChoiceSets& kept) {
  PairwiseBudget out{budget.name, budget.lo, budget.hi, {}};
  for (const BudgetTerm& term : budget.terms)
    out.terms.push_back({term.variable, Select(term.amount, kept[term.variable.index()])});
  return out;
}

PairwiseProblem KeepChoices(const PairwiseProblem& problem, const ChoiceSets& kept) {
  HEDDLE_CHECK(problem.edges.empty() && problem.relations.empty(), "choices of moves alone");
  PairwiseProblem out;
  for (VariableId v : problem.variables.ids()) {
    const PairwiseVariable& variable = problem.variables[v];
    out.variables.Add({variable.name, Select(variable.cost, kept[v.index()])});
  }
  for (const PairwiseBudget& budget : problem.budgets)
    out.budgets.push_back(KeepChoices(budget, kept));
  for (const SharedMove& move : problem.moves) out.moves.push_back(KeepChoices(move, kept));
  return out;
}

PairwiseProblem WithoutSharing(const PairwiseProblem& problem) {
  PairwiseProblem out = problem;
  out.moves.clear();
  for (const SharedMove& move : problem.moves) {
    for (const SharedReader& reader : move.readers) {
      std::vector<double> pays = PricesAlone(move, reader);
      size_t columns = reader.choices();
      if (reader.variable() == move.from) {
        std::vector<double>& cost = out.variables[VariableId(move.from)].cost;
        for (size_t k = 0; k < columns; ++k) cost[k] += pays[move.sources[k] * columns + k];
        continue;
      }
      std::vector<double> matrix;
      for (uint32_t place : move.sources)
        matrix.insert(matrix.end(), &pays[place * columns], &pays[place * columns] + columns);
      out.edges.push_back({VariableId(move.from), VariableId(reader.variable()),
                           out.matrices.Add(std::move(matrix))});
    }
  }
  return out;
}

}  // namespace heddle::search
