// Compares answers with exhaustive search.
#include "heddle/search/solve/solve.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "heddle/search/solve/conflict.h"

namespace heddle::search {
namespace {

struct RandomOptions {
  size_t least_variables = 1;
  size_t most_variables = 6;
  size_t most_choices = 4;
  // In percent.
  int edges = 60;
  int forbidden = 15;
  int relations = 20;
  int restrictions = 20;
  size_t most_budgets = 2;
  // Integer costs make many answers equal, and their sums are exact.
  bool whole = false;
  // Costs and amounts of variables and edges differ by up to this number of powers of ten.
  int powers = 0;
};

class RandomProblem {
 public:
  RandomProblem(uint32_t seed, const RandomOptions& options) : random_(seed), options_(options) {}

  PairwiseProblem Make() {
    size_t n =
        options_.least_variables + Pick(options_.most_variables - options_.least_variables + 1);
    for (size_t v = 0; v < n; ++v) {
      PickScale();
      PairwiseVariable variable{fmt::format("v{}", v), {}};
      for (size_t k = 1 + Pick(options_.most_choices); k > 0; --k)
        variable.cost.push_back(Number());
      if (Chance(options_.forbidden)) variable.cost[Pick(variable.cost.size())] = kForbidden;
      problem_.variables.Add(std::move(variable));
    }
    for (size_t u = 0; u < n; ++u) {
      for (size_t v = u + 1; v < n; ++v) {
        if (Chance(options_.edges)) AddEdge(u, v);
        if (Chance(options_.relations) && Chance(30)) AddRelation(u, v);
      }
      if (Chance(options_.restrictions)) AddRestriction(u);
    }
    for (size_t b = Pick(options_.most_budgets + 1); b > 0; --b) AddBudget(b);
    return std::move(problem_);
  }

 private:
  size_t Pick(size_t n) { return static_cast<size_t>(random_() % n); }
  bool Chance(int percent) { return random_() % 100 < static_cast<uint32_t>(percent); }
  // Picks the scale of all numbers of one item.
  void PickScale() {
    scale_ =
        std::pow(10, static_cast<int>(random_() % (2 * options_.powers + 1)) - options_.powers);
  }
  double Number() { return scale_ * PlainNumber(); }
  double PlainNumber() {
    if (options_.whole) return static_cast<double>(random_() % 7) - 2;
    return static_cast<double>(random_() % 20'001) / 1000 - 5;
  }
  size_t size(size_t v) const { return problem_.variables[VariableId(v)].cost.size(); }

  void AddEdge(size_t u, size_t v) {
    // Either end may come first.
    if (Chance(50)) std::swap(u, v);
    PickScale();
    std::vector<double> matrix;
    for (size_t i = 0; i < size(u) * size(v); ++i)
      matrix.push_back(Chance(options_.forbidden) ? kForbidden : Number());
    MatrixId id = problem_.matrices.Add(std::move(matrix));
    problem_.edges.push_back({VariableId(u), VariableId(v), id});
  }

  // One to one, or arbitrary pairs.
  void AddRelation(size_t u, size_t v) {
    PairwiseRelation relation{VariableId(u), VariableId(v), "tie", {}};
    bool one_to_one = Chance(60);
    std::vector<uint32_t> partners;
    for (uint32_t k = 0; k < size(v); ++k) partners.push_back(k);
    std::ranges::shuffle(partners, random_);
    for (uint32_t a = 0; a < size(u); ++a) {
      for (uint32_t b = 0; b < size(v); ++b) {
        if (one_to_one ? a < partners.size() && partners[a] == b : Chance(60))
          relation.pairs.emplace_back(a, b);
      }
    }
    problem_.relations.push_back(std::move(relation));
  }

  void AddRestriction(size_t v) {
    PairwiseRestriction restriction{VariableId(v), "input", {}};
    for (uint32_t k = 0; k < size(v); ++k) {
      if (Chance(70)) restriction.allowed.push_back(k);
    }
    problem_.restrictions.push_back(std::move(restriction));
  }

  void AddBudget(size_t number) {
    PairwiseBudget budget;
    budget.name = fmt::format("b{}", number);
    double least = 0;
    double most = 0;
    for (size_t v = 0; v < problem_.variables.size(); ++v) {
      if (!Chance(80)) continue;
      PickScale();
      BudgetTerm term{VariableId(v), {}};
      for (size_t k = 0; k < size(v); ++k)
        term.amount.push_back(scale_ * static_cast<double>(random_() % 16) / 8);
      least += *std::ranges::min_element(term.amount);
      most += *std::ranges::max_element(term.amount);
      budget.terms.push_back(std::move(term));
    }
    auto between = [&] {
      return least + std::round((most - least) * static_cast<double>(random_() % 9)) / 8;
    };
    if (Chance(85)) budget.hi = between();
    if (Chance(25)) budget.lo = std::min(budget.hi, between());
    problem_.budgets.push_back(std::move(budget));
  }

  std::mt19937 random_;
  RandomOptions options_;
  PairwiseProblem problem_;
  double scale_ = 1;
};

bool KeepsBudgets(const PairwiseProblem& problem, const std::vector<uint32_t>& x) {
  return std::ranges::all_of(problem.budgets, [&](const PairwiseBudget& budget) {
    return Keeps(budget, Amount(budget, x));
  });
}

// The same without the tolerance of a budget, except for the rounding of its sum.
bool KeepsBudgetsExactly(const PairwiseProblem& problem, const std::vector<uint32_t>& x) {
  return std::ranges::all_of(problem.budgets, [&](const PairwiseBudget& budget) {
    double amount = Amount(budget, x);
    double rounding = 1e-15 * std::abs(amount);
    return amount >= budget.lo - rounding && amount <= budget.hi + rounding;
  });
}

// An assignment that is within a budget only by its tolerance may or may not be found.
struct Optimum {
  double with_tolerance = kForbidden;
  double exact = kForbidden;
};

Optimum ExhaustiveOptimum(const PairwiseProblem& problem) {
  std::vector<uint32_t> x(problem.variables.size());
  Optimum best;
  for (;;) {
    if (KeepsBudgets(problem, x)) {
      double cost = Cost(problem, x);
      best.with_tolerance = std::min(best.with_tolerance, cost);
      if (KeepsBudgetsExactly(problem, x)) best.exact = std::min(best.exact, cost);
    }
    size_t v = 0;
    for (; v < x.size(); ++v) {
      if (++x[v] < problem.variables[VariableId(v)].cost.size()) break;
      x[v] = 0;
    }
    if (v == x.size()) return best;
  }
}

// Compares an answer with the optimum. Returns whether there is one.
bool ExpectOptimum(const PairwiseProblem& problem, const Search& search, const Optimum& optimum) {
  EXPECT_TRUE(search.finished());
  EXPECT_GE(search.best_cost(), optimum.with_tolerance - search.Tolerance(optimum.with_tolerance));
  EXPECT_LE(search.best_cost(), optimum.exact + search.Tolerance(optimum.exact));
  EXPECT_EQ(search.bound(), search.best_cost());
  if (search.best_cost() == kForbidden) return false;
  EXPECT_EQ(Cost(problem, search.best()), search.best_cost());
  EXPECT_TRUE(KeepsBudgets(problem, search.best()));
  return true;
}

// Returns the total effort.
SearchCounts CompareWithExhaustive(uint32_t first_seed, uint32_t count,
                                   const RandomOptions& options) {
  size_t feasible = 0;
  SearchCounts effort;
  for (uint32_t seed = first_seed; seed < first_seed + count; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    PairwiseProblem problem = RandomProblem(seed, options).Make();
    EXPECT_TRUE(FindErrors(problem).empty());
    Optimum optimum = ExhaustiveOptimum(problem);
    for (bool join : {true, false}) {
      Search search(problem, {.join = join});
      search.Run();
      feasible += ExpectOptimum(problem, search, optimum);
      effort.sweeps += search.counts().sweeps;
      effort.joins += search.counts().joins;
      effort.branches += search.counts().branches;
    }
    // The bound also holds if the search stops immediately.
    Search stopped(problem, {.limit = WorkLimit({.work = 0})});
    stopped.Run();
    EXPECT_LE(stopped.bound(), optimum.exact + stopped.Tolerance(optimum.exact));
    EXPECT_GE(stopped.best_cost(),
              optimum.with_tolerance - stopped.Tolerance(optimum.with_tolerance));
    if (testing::Test::HasFailure()) break;
  }
  // Neither kind is rare.
  EXPECT_GT(feasible, count / 4);
  EXPECT_LT(feasible, 2 * count);
  return effort;
}

// Returns a problem with only the items of a conflict, except item number `left_out`.
PairwiseProblem Only(const PairwiseProblem& problem, const Conflict& conflict, size_t left_out) {
  PairwiseProblem only = problem;
  size_t number = 0;
  auto pick = [&](auto& items, const std::vector<size_t>& named) {
    auto all = std::move(items);
    items.clear();
    for (size_t i : named) {
      if (number++ != left_out) items.push_back(all[i]);
    }
  };
  pick(only.budgets, conflict.budgets);
  pick(only.restrictions, conflict.restrictions);
  pick(only.relations, conflict.relations);
  pick(only.edges, conflict.edges);
  for (PairwiseVariable& variable : only.variables) std::ranges::fill(variable.cost, 0);
  for (size_t v : conflict.variables) {
    if (number++ != left_out) only.variables[VariableId(v)] = problem.variables[VariableId(v)];
  }
  return only;
}

TEST(Solve, EqualsExhaustiveSearch) { CompareWithExhaustive(1, 1500, {}); }

TEST(Solve, EqualsExhaustiveSearchWithManyEqualCosts) {
  CompareWithExhaustive(10'000, 500, {.most_variables = 7, .most_choices = 3, .whole = true});
}

TEST(Solve, EqualsExhaustiveSearchWhereReductionsFindLittle) {
  SearchCounts effort = CompareWithExhaustive(20'000, 400,
                                              {.least_variables = 6,
                                               .most_variables = 7,
                                               .edges = 100,
                                               .forbidden = 3,
                                               .relations = 2,
                                               .restrictions = 3,
                                               .most_budgets = 3});
  EXPECT_GT(effort.sweeps, 10'000u);
  EXPECT_GT(effort.joins, 100u);
  EXPECT_GT(effort.branches, 100u);
}

TEST(Solve, EqualsExhaustiveSearchWithLargeAndSmallNumbers) {
  CompareWithExhaustive(30'000, 300,
                        {.least_variables = 4,
                         .most_variables = 6,
                         .edges = 80,
                         .forbidden = 5,
                         .relations = 2,
                         .restrictions = 3,
                         .most_budgets = 2,
                         .powers = 6});
}

TEST(Solve, TheSameProblemGivesTheSameAnswer) {
  RandomOptions options{.least_variables = 30,
                        .most_variables = 30,
                        .edges = 15,
                        .forbidden = 3,
                        .relations = 0,
                        .restrictions = 0,
                        .most_budgets = 1};
  for (uint32_t seed = 1; seed <= 10; ++seed) {
    PairwiseProblem problem = RandomProblem(seed, options).Make();
    PairwiseAnswer first = Solve(problem);
    PairwiseAnswer second = Solve(PairwiseProblem(problem));
    EXPECT_EQ(first.x, second.x);
    EXPECT_EQ(first.counts.sweeps, second.counts.sweeps);
    EXPECT_EQ(first.counts.branches, second.counts.branches);
  }
}

// For any limit: an answer that is not proved has a gap, and both of its ends hold.
TEST(Solve, TheSameWorkGivesTheSameAnswer) {
  RandomOptions options{.least_variables = 30,
                        .most_variables = 30,
                        .edges = 15,
                        .forbidden = 3,
                        .relations = 0,
                        .restrictions = 0,
                        .most_budgets = 1};
  PairwiseProblem problem = RandomProblem(3, options).Make();
  double optimum = Solve(problem).objective;
  std::set<double> bounds;
  size_t stopped = 0;
  bool proved = false;
  for (uint64_t work = 1; !proved && work < 1'000'000'000; work *= 2) {
    PairwiseAnswer first = Solve(problem, {.limit = WorkLimit({.work = work})});
    PairwiseAnswer second = Solve(problem, {.limit = WorkLimit({.work = work})});
    EXPECT_EQ(first.x, second.x);
    EXPECT_EQ(first.bound, second.bound);
    EXPECT_EQ(first.counts.sweeps, second.counts.sweeps);
    EXPECT_LE(first.bound, optimum);
    EXPECT_GE(first.objective, optimum);
    proved = first.proved();
    EXPECT_EQ(first.gap() == 0, proved);
    stopped += proved ? 0 : 1;
    bounds.insert(first.bound);
  }
  EXPECT_TRUE(proved);
  EXPECT_GT(stopped, 5u);
  EXPECT_GT(bounds.size(), 2u);
}

TEST(Solve, NoVariablesCostNothing) {
  PairwiseAnswer answer = Solve({});
  EXPECT_TRUE(answer.proved());
  EXPECT_EQ(answer.objective, 0);
  EXPECT_TRUE(answer.x.empty());
  EXPECT_EQ(answer.gap(), 0);
}

TEST(Solve, LargeAndSmallCostsCancelWithinTheTolerance) {
  PairwiseProblem problem;
  VariableId a = problem.variables.Add({"a", {1e20, 1e20 + 1e6, 3}});
  VariableId b = problem.variables.Add({"b", {-1e20, 5}});
  MatrixId matrix = problem.matrices.Add({0, 0, 0, 0, kForbidden, 0});
  problem.edges.push_back({a, b, matrix});
  PairwiseAnswer answer = Solve(problem);
  ASSERT_TRUE(answer.proved());
  EXPECT_EQ(answer.objective, Cost(problem, answer.x));
  EXPECT_LE(answer.objective, answer.tolerance);
  EXPECT_GE(answer.tolerance, 1e4);
}

// Long chains, wide stars, and two hubs with a thousand paths between them: no step is quadratic,
// and nothing recurses.
TEST(Solve, TakesLargeProblemsOfAnyShape) {
  constexpr size_t kSize = 50'000;
  for (int shape = 0; shape < 3; ++shape) {
    PairwiseProblem problem;
    MatrixId matrix = problem.matrices.Add({0, 1, 1, 0});
    for (size_t v = 0; v < kSize; ++v)
      problem.variables.Add({"", {static_cast<double>(v % 3), static_cast<double>(v % 2)}});
    for (size_t v = 1; v < kSize; ++v) {
      VariableId hub(shape == 0 ? v - 1 : 0);
      problem.edges.push_back({hub, VariableId(v), matrix});
      if (shape == 2 && v > 1) problem.edges.push_back({VariableId(v), VariableId(1), matrix});
    }
    EXPECT_TRUE(Solve(problem).proved());
  }
}

TEST(Conflict, IsSmallest) {
  RandomOptions options{.forbidden = 30, .relations = 40, .restrictions = 50};
  int infeasible = 0;
  for (uint32_t seed = 1; seed <= 400; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    PairwiseProblem problem = RandomProblem(seed, options).Make();
    if (ExhaustiveOptimum(problem).with_tolerance != kForbidden) continue;
    ++infeasible;
    Conflict conflict = FindConflict(problem, WorkLimit(WorkAmount::Work(10)));
    EXPECT_TRUE(conflict.smallest);
    // The conflict is infeasible; without any one of its items, it is feasible.
    size_t size = conflict.budgets.size() + conflict.restrictions.size() +
                  conflict.relations.size() + conflict.edges.size() + conflict.variables.size();
    EXPECT_EQ(ExhaustiveOptimum(Only(problem, conflict, SIZE_MAX)).exact, kForbidden);
    for (size_t i = 0; i < size; ++i)
      EXPECT_NE(ExhaustiveOptimum(Only(problem, conflict, i)).exact, kForbidden);
  }
  EXPECT_GT(infeasible, 50);
}

}  // namespace
}  // namespace heddle::search
