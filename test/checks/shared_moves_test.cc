// Compares the solver with all assignments of problems with shared moves.
#include "heddle/search/solve/solve.h"

#include <cmath>
#include <memory>
#include <numeric>
#include <random>

#include <gtest/gtest.h>

#include "heddle/search/solve/engine/price_search.h"
#include "heddle/search/solve/engine/sweeps.h"

namespace heddle {
namespace {

class RandomProblem {
 public:
  // `times` scales the size of the problem.
  explicit RandomProblem(uint32_t seed, uint32_t times = 1) : times_(times), random_(seed) {
    for (uint32_t v = 0; v < 4 * times + Below(3); ++v) AddVariable();
    for (uint32_t e = 0; e < 3 * times; ++e) AddEdge();
    for (uint32_t m = 0; m < times + Below(3); ++m) AddMove();
    if (Below(2) == 0) AddBudget();
  }

  const search::PairwiseProblem& problem() const { return out_; }

 private:
  uint32_t Below(uint32_t n) { return static_cast<uint32_t>(random_() % n); }
  uint32_t size() const { return static_cast<uint32_t>(out_.variables.size()); }
  uint32_t SizeOf(uint32_t v) const {
    return static_cast<uint32_t>(out_.variables[search::VariableId(v)].cost.size());
  }
  // Equal costs, zero costs and forbidden choices.
  double Price() { return Below(12) == 0 ? search::kForbidden : Below(6) * 10; }

  void AddVariable() {
    std::vector<double> cost(1 + Below(4 * times_));
    for (double& c : cost) c = Below(50);
    out_.variables.Add({"v", std::move(cost)});
  }
  void AddEdge() {
    uint32_t u = Below(size() - 1);
    uint32_t v = u + 1 + Below(size() - u - 1);
    search::MovePrices prices{SizeOf(v)};
    for (uint32_t i = 0; i < SizeOf(u) * SizeOf(v); ++i) prices.all.push_back(Price());
    std::vector<uint32_t> sources(SizeOf(u));
    std::iota(sources.begin(), sources.end(), 0U);
    std::vector<std::vector<uint32_t>> wants;
    for (uint32_t c = 0; c < SizeOf(v); ++c) wants.push_back({c});
    auto shared = std::make_shared<const search::MovePrices>(std::move(prices));
    out_.moves.push_back(
        {u, std::move(sources), {search::SharedReader(v, wants)}, std::move(shared)});
  }
  void AddMove() {
    search::SharedMove move{Below(size()), {}, {}, {}};
    uint32_t places = 1 + Below(3);
    uint32_t goals = 1 + Below(4);
    for (uint32_t c = 0; c < SizeOf(move.from); ++c) move.sources.push_back(Below(places));
    search::MovePrices prices{goals};
    for (uint32_t i = 0; i < places * goals; ++i) prices.all.push_back(Price());
    move.prices = std::make_shared<const search::MovePrices>(std::move(prices));
    for (uint32_t v = 0; v < size(); ++v) {
      if (Below(3 * times_) >= 2) continue;
      std::vector<std::vector<uint32_t>> wants(SizeOf(v));
      for (std::vector<uint32_t>& want : wants) {
        for (uint32_t to = Below(goals); to < goals && want.size() < 2; to += 1 + Below(3))
          want.push_back(to);
      }
      move.readers.emplace_back(v, wants);
    }
    if (!move.readers.empty()) out_.moves.push_back(std::move(move));
  }
  void AddBudget() {
    search::PairwiseBudget budget{"memory", 0, 0, {}};
    for (uint32_t v = 0; v < size(); ++v) {
      std::vector<double> amount(SizeOf(v));
      for (double& a : amount) a = Below(10);
      budget.terms.push_back({search::VariableId(v), std::move(amount)});
    }
    budget.hi = Below(5 * size());
    out_.budgets.push_back(std::move(budget));
  }

  uint32_t times_;
  std::mt19937 random_;
  search::PairwiseProblem out_;
};

// Visits every assignment that keeps the budgets.
template <typename Visit>
void ForEachAssignment(const search::PairwiseProblem& problem, Visit visit) {
  std::vector<uint32_t> x(problem.variables.size());
  for (;;) {
    bool keeps = true;
    for (const search::PairwiseBudget& budget : problem.budgets)
      keeps &= search::Keeps(budget, search::Amount(budget, x));
    if (keeps) visit(x);
    size_t v = 0;
    while (v < x.size() && ++x[v] == problem.variables[search::VariableId(v)].cost.size())
      x[v++] = 0;
    if (v == x.size()) return;
  }
}

TEST(SharedMoves, AreSolvedAsEnumerationDoes) {
  int possible = 0;
  int stopped = 0;
  for (uint32_t seed = 1; seed <= 1000; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem random(seed);
    const search::PairwiseProblem& problem = random.problem();
    double best = search::kForbidden;
    ForEachAssignment(problem, [&](const std::vector<uint32_t>& x) {
      best = std::min(best, search::Cost(problem, x));
    });
    search::PairwiseAnswer answer = search::Solve(problem);
    ASSERT_EQ(answer.objective, best);
    // With messages as long as they help, and without.
    ASSERT_EQ(search::Solve(problem, {.few_entries = 0}).objective, best);
    ASSERT_EQ(search::Solve(problem, {.few_entries = SIZE_MAX}).objective, best);
    // A search that stops immediately has valid bounds, too, up to rounding.
    search::PairwiseAnswer little =
        search::Solve(problem, {.limit = search::WorkLimit({.work = 1}), .few_entries = 0});
    ASSERT_LE(little.bound, best + 1e-9 * std::abs(best));
    ASSERT_GE(little.objective, best);
    stopped += little.outcome == search::SolveOutcome::kStopped ? 1 : 0;
    if (best == search::kForbidden) continue;
    ++possible;
    ASSERT_TRUE(answer.proved());
    ASSERT_EQ(search::Cost(problem, answer.x), best);
  }
  EXPECT_GT(possible, 300);
  EXPECT_GT(stopped, 10);
}

// Larger problems: the search must not miss answers on the way.
TEST(SharedMoves, AreSolvedAsPairsAre) {
  constexpr size_t kMost = size_t{1} << 23;
  int possible = 0;
  for (uint32_t seed = 1; seed <= 100; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem random(seed, 3);
    const search::PairwiseProblem& problem = random.problem();
    if (!search::CopiesFit(problem.moves, kMost)) continue;
    search::PairwiseAnswer exact = search::Solve(
        problem, {.limit = search::WorkLimit(search::WorkAmount::Work(2)), .few_entries = kMost});
    if (!exact.proved()) continue;
    search::PairwiseAnswer answer = search::Solve(problem, {.few_entries = 0});
    ASSERT_EQ(answer.objective, exact.objective);
    ASSERT_LE(answer.bound, exact.objective);
    ++possible;
  }
  EXPECT_GT(possible, 50);
}

// Reusing what one problem has learned does not change the answer to another demand.
TEST(SharedMoves, AreSolvedWithWhatWasLearnt) {
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem random(seed);
    search::PairwiseProblem problem = random.problem();
    search::Messages messages;
    search::PairwiseAnswer first =
        search::Solve(problem, {.messages = &messages, .few_entries = 0});
    problem.restrictions.push_back({search::VariableId(0), "what if", {0}});
    double best = search::kForbidden;
    ForEachAssignment(problem, [&](const std::vector<uint32_t>& x) {
      if (x[0] == 0) best = std::min(best, search::Cost(problem, x));
    });
    search::PairwiseAnswer second =
        search::Solve(problem, {.starts = {first.x}, .messages = &messages, .few_entries = 0});
    ASSERT_EQ(second.objective, best);
  }
}

// The choices near the best answer include it, so solving among them gives the same cost.
TEST(SharedMoves, AreSolvedAmongTheNear) {
  int fewer = 0;
  for (uint32_t seed = 1; seed <= 300; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem random(seed);
    const search::PairwiseProblem& problem = random.problem();
    search::Messages messages;
    search::ChoiceSets near;
    search::PairwiseAnswer answer = search::Solve(
        problem, {.messages = &messages, .near = &near, .near_entries = 20, .few_entries = 0});
    if (near.empty()) continue;
    search::Messages of_near = search::KeepChoices(messages, near);
    search::PairwiseAnswer again =
        search::Solve(search::KeepChoices(problem, near), {.messages = &of_near});
    ASSERT_EQ(again.objective, answer.objective);
    for (size_t v = 0; v < near.size(); ++v) again.x[v] = near[v][again.x[v]];
    ASSERT_EQ(search::Cost(problem, again.x), again.objective);
    size_t all = 0;
    size_t left = 0;
    for (size_t v = 0; v < near.size(); ++v) {
      all += problem.variables[search::VariableId(v)].cost.size();
      left += near[v].size();
    }
    fewer += left < all ? 1 : 0;
  }
  EXPECT_GT(fewer, 0);
}

TEST(SharedMoves, CostNoMoreThanWithoutSharing) {
  for (uint32_t seed = 1; seed <= 50; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem random(seed);
    const search::PairwiseProblem& problem = random.problem();
    search::PairwiseProblem alone = search::WithoutSharing(problem);
    ForEachAssignment(problem, [&](const std::vector<uint32_t>& x) {
      ASSERT_LE(search::Cost(problem, x), search::Cost(alone, x));
      ASSERT_EQ(search::Cost(problem, x) == search::kForbidden,
                search::Cost(alone, x) == search::kForbidden);
    });
  }
}

TEST(SharedMoves, AreChecked) {
  search::PairwiseProblem problem;
  for (int i = 0; i < 2; ++i) problem.variables.Add({"v", {0, 0}});
  auto prices = std::make_shared<const search::MovePrices>(search::MovePrices{1, {1, 2}});
  problem.moves.push_back({0, {0, 1}, {search::SharedReader(1, {{0}, {}})}, prices});
  EXPECT_TRUE(search::FindErrors(problem).empty());
  problem.moves[0].sources.pop_back();
  problem.moves[0].readers.emplace_back(7, std::vector<std::vector<uint32_t>>{{0}});
  problem.edges.push_back(
      {search::VariableId(0), search::VariableId(1), problem.matrices.Add({0, 0, 0, 0})});
  EXPECT_EQ(search::FindErrors(problem).size(), 3U);
}

// In every run, at every price: no choice costs less than the sweeps state, and the bound never
// falls.
TEST(MoveSweeps, SayNoMoreThanAssignmentsCost) {
  for (uint32_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem random(seed);
    const search::PairwiseProblem& problem = random.problem();
    std::vector<std::vector<double>> least;
    for (const search::PairwiseVariable& variable : problem.variables)
      least.emplace_back(variable.cost.size(), search::kForbidden);
    double best = search::kForbidden;
    ForEachAssignment(problem, [&](const std::vector<uint32_t>& x) {
      double cost = search::Cost(problem, x);
      best = std::min(best, cost);
      for (size_t v = 0; v < x.size(); ++v) least[v][x[v]] = std::min(least[v][x[v]], cost);
    });
    search::Core core = search::MakeCore(problem).first;
    search::Sweeps sweeps(core, std::vector<double>(core.rows.size()));
    for (double price : {0.0, 3.0}) {
      if (price > 0 && core.rows.empty()) continue;
      sweeps.SetPrices(std::vector<double>(core.rows.size(), price));
      double before = -search::kForbidden;
      for (int run = 0; run < 20; ++run) {
        double bound = sweeps.Run();
        ASSERT_GE(bound + 1e-6, before);
        ASSERT_LE(bound, best + 1e-6);
        before = bound;
      }
      if (before == search::kForbidden) continue;
      size_t next = 0;
      for (const std::vector<double>& costs : least) {
        for (double cost : costs) ASSERT_LE(sweeps.base() + sweeps.excess()[next++], cost + 1e-6);
      }
    }
  }
}

// The bound is exact for a single move if every reader wants one placement, for any number of
// readers.
TEST(MoveSweeps, AreExactForOneMove) {
  for (uint32_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem random(seed);
    search::PairwiseProblem problem = random.problem();
    problem.budgets.clear();
    search::SharedMove move = problem.moves.back();
    for (search::SharedReader& reader : move.readers) {
      std::vector<std::vector<uint32_t>> wants;
      for (size_t c = 0; c < reader.choices(); ++c) wants.push_back({reader.Wants(c)[0]});
      reader = search::SharedReader(reader.variable(), wants);
    }
    problem.moves = {move};
    double best = search::kForbidden;
    ForEachAssignment(problem, [&](const std::vector<uint32_t>& x) {
      best = std::min(best, search::Cost(problem, x));
    });
    search::Core core = search::MakeCore(problem).first;
    search::Sweeps sweeps(core, {});
    double bound = sweeps.Run(false);
    ASSERT_EQ(bound == search::kForbidden, best == search::kForbidden);
    if (best == search::kForbidden) continue;
    ASSERT_NEAR(bound, best, 1e-6);
    // The assignment that the next run suggests is optimal.
    sweeps.Run();
    ASSERT_EQ(search::Cost(problem, sweeps.rounded().x), best);
  }
}

// The bound at the best price of a budget is at least the bound without a price.
TEST(PriceSearch, RaisesTheBound) {
  int higher = 0;
  for (uint32_t seed = 1; seed <= 500; ++seed) {
    SCOPED_TRACE(seed);
    RandomProblem random(seed);
    const search::PairwiseProblem& problem = random.problem();
    if (problem.budgets.empty()) continue;
    std::vector<uint32_t> best;
    ForEachAssignment(problem, [&](const std::vector<uint32_t>& x) {
      if (best.empty() || search::Cost(problem, x) < search::Cost(problem, best)) best = x;
    });
    if (best.empty() || search::Cost(problem, best) == search::kForbidden) continue;
    auto line = [&](const std::vector<uint32_t>& x) {
      return search::PriceLine{search::Cost(problem, x), search::Amount(problem.budgets[0], x), x};
    };
    search::Core core = search::MakeCore(problem).first;
    search::Sweeps sweeps(core, {0});
    auto bound_at = [&](double price) {
      sweeps.SetPrices({price});
      for (int run = 0; run < 20; ++run) sweeps.Run();
      ASSERT_LE(sweeps.bound(), search::Cost(problem, best) + 1e-6);
    };
    search::PriceSearch price(core.rows[0], search::kForbidden, 0);
    bound_at(0);
    double without = sweeps.bound();
    double bound = without;
    while (price.Step(sweeps.bound(), line(sweeps.rounded().x), line(best))) {
      bound_at(price.price());
      bound = std::max(bound, sweeps.bound());
    }
    bound_at(price.best_price());
    ASSERT_NEAR(sweeps.bound(), bound, 1e-3 * bound);
    higher += bound > without + 1e-6 ? 1 : 0;
  }
  EXPECT_GT(higher, 0);
}

}  // namespace
}  // namespace heddle
