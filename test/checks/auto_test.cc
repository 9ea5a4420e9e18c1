// Automatic plans: the cost of an assignment in the problem equals the cost of its compiled plan,
// to the nanosecond.
#include <functional>
#include <random>

#include <gtest/gtest.h>

#include "heddle/compile/compile.h"
#include "heddle/core/base/test/extent.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/search/placement/auto_plan.h"
#include "heddle/search/placement/placement_problem.h"
#include "heddle/search/solve/solve.h"
#include "test/checks/random_step.h"

namespace heddle {
namespace {

struct Shape {
  std::string_view mesh;
  // Use every N-th graph.
  uint32_t every;
};
constexpr Shape kShapes[] = {
    {"a=2", 1}, {"a=4", 1}, {"a=2, b=2", 1}, {"a=2, b=3", 1}, {"a=2, b=2, c=2", 10}};

const price::CostModel& Model() {
  static const price::CostModel model = *price::CostModel::Make(*price::LoadCluster("h100-8x"), {});
  return model;
}

// Returns the time of the kernels and collectives of one rank's graph.
Result<Nanos> CostOf(const Module& captured, const compile::Plan& plan) {
  Module module = captured;
  HEDDLE_RETURN_IF_ERROR(compile::Compile(module, plan, {.pipeline = ""}));
  HEDDLE_TRY(price::GraphCosts costs, Model().Price(module, module.graphs[0]));
  Nanos sum;
  for (NodeId node : module.graphs[0].nodes()) {
    const price::NodeCost& cost = costs.nodes[node];
    sum += cost.compute + cost.pack + cost.collective.total();
  }
  return sum;
}

class AutoCase {
 public:
  AutoCase(uint32_t seed, std::string_view mesh) : random_(seed) {
    module_ = *ParseModule(MakeRandomStep(seed, NumberKind::kWhole).graph, "graph", Ops());
    plan_ = *compile::ParsePlan(fmt::format("heddle plan 1\nmesh [{}]\nauto\n", mesh), "plan");
    decisions_ = *search::FindDecisions(module_.graphs[0], plan_);
    Result<search::PlacementProblemBuilder> builder =
        search::PlacementProblemBuilder::Make(module_.graphs[0], plan_, decisions_, Model());
    problem_ = *builder->Build({});
  }

  void ExpectCost(const std::vector<uint32_t>& x) {
    Result<compile::Plan> plan = search::PlanOf(module_, plan_, decisions_, x);
    ASSERT_TRUE(plan.ok()) << Format(plan.diagnostics());
    Result<Nanos> cost = CostOf(module_, *plan);
    ASSERT_TRUE(cost.ok()) << compile::FormatPlan(*plan) << Format(cost.diagnostics());
    EXPECT_EQ(static_cast<double>(cost->value), search::Cost(problem_, x))
        << compile::FormatPlan(*plan);
  }

  // Checks that no op splits a dimension of a result over more ranks than it has elements.
  void ExpectParts() const {
    const Graph& graph = module_.graphs[0];
    for (const search::Decision& decision : decisions_.all) {
      if (decision.kind != search::Decision::Kind::kNode) continue;
      ValueId v = graph[NodeId(decision.members[0])].first_result;
      for (const compile::OpSplit& split : decision.choices) {
        for (size_t d = 0; v && d < split.results[0].splits.size(); ++d)
          EXPECT_LE(plan_.mesh.Size(split.results[0].splits[d]),
                    graph.types().dims(graph.type(v))[d]);
      }
    }
  }

  const search::PairwiseProblem& problem() const { return problem_; }
  std::vector<uint32_t> whole() const { return std::vector<uint32_t>(decisions_.all.size()); }
  // Changes single choices of a feasible assignment.
  std::vector<uint32_t> Changed(std::vector<uint32_t> x) {
    for (int i = 0; i < 40; ++i) {
      std::vector<uint32_t> y = x;
      size_t v = random_() % decisions_.all.size();
      y[v] = random_() % problem_.variables[search::VariableId(v)].cost.size();
      if (search::Cost(problem_, y) != search::kForbidden) x = y;
    }
    return x;
  }

 private:
  std::mt19937 random_;
  Module module_;
  compile::Plan plan_;
  search::Decisions decisions_;
  search::PairwiseProblem problem_;
};

void ForAllCases(const std::function<void(AutoCase&)>& check) {
  const uint32_t graphs = Extent(40, 125);
  for (uint32_t seed = 1; seed <= graphs; ++seed) {
    for (const Shape& shape : kShapes) {
      if (seed % shape.every != 0) continue;
      SCOPED_TRACE(fmt::format("seed {}, mesh [{}]", seed, shape.mesh));
      AutoCase one(seed, shape.mesh);
      check(one);
      if (testing::Test::HasFailure()) return;
    }
  }
}

TEST(Auto, TheProblemCostsWhatThePlanCosts) {
  ForAllCases([](AutoCase& one) {
    one.ExpectParts();
    one.ExpectCost(one.whole());
    one.ExpectCost(one.Changed(one.whole()));
  });
}

// A tensor with an empty dimension can be split along its other dimensions.
TEST(Auto, SplitsBesideADimensionOfNothing) {
  Module module = *ParseModule(
      "heddle 1 global\n"
      "graph @step(%x: f32[0,8] batch \"x\") -> (loss %loss) {\n"
      " fwd:\n"
      "  %r = aten.relu(%x)\n"
      "  %loss = aten.sum(%r)\n"
      "}\n",
      "graph", Ops());
  compile::Plan plan = *compile::ParsePlan("heddle plan 1\nmesh [a=4]\nauto\n", "plan");
  search::Decisions decisions = *search::FindDecisions(module.graphs[0], plan);
  const std::vector<compile::OpSplit>& choices = decisions.all[decisions.of_node[0]].choices;
  EXPECT_TRUE(std::ranges::any_of(choices, [](const compile::OpSplit& split) {
    return split.results[0].splits.size() == 2 && !split.results[0].splits[1].empty();
  }));
}

TEST(Auto, FindsTheCheapest) {
  int compared = 0;
  int all = 0;
  ForAllCases([&](AutoCase& one) {
    search::PairwiseAnswer answer =
        search::Solve(one.problem(), {.limit = search::WorkLimit(search::WorkAmount::Work(60))});
    EXPECT_TRUE(answer.proved()) << answer.objective << " " << answer.bound;
    one.ExpectCost(answer.x);
    ++all;
    constexpr size_t kMost = size_t{1} << 23;
    if (!search::CopiesFit(one.problem().moves, kMost)) return;
    // With all choices, including those that messages exclude.
    EXPECT_EQ(answer.objective, search::Solve(one.problem(), {.few_entries = kMost}).objective);
    ++compared;
  });
  EXPECT_GT(compared, all * 3 / 4);
}

// Less memory never makes a step faster, and plans respect their budget.
TEST(Auto, SmallerBudgetsCostMore) {
  int refused = 0;
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(fmt::format("seed {}", seed));
    Module module = *ParseModule(MakeRandomStep(seed, NumberKind::kWhole).graph, "graph", Ops());
    compile::Plan plan = *compile::ParsePlan("heddle plan 1\nmesh [a=4]\nauto\n", "plan");
    Bytes budget = GiB(1);
    Nanos before;
    for (int step = 0; step < 6; ++step) {
      Result<search::AutoPlan> found = search::CompletePlan(
          module, plan, Model(), {.memory = search::MemoryLimit{budget, true}});
      if (!found.ok()) {
        EXPECT_EQ(found.diagnostics()[0].kind, Diag::kInfeasible) << Format(found.diagnostics());
        ++refused;
        break;
      }
      EXPECT_EQ(found->cost, found->bound);
      EXPECT_LE(found->memory, budget);
      EXPECT_GE(found->cost, before);
      before = found->cost;
      budget = {found->memory.value * 4 / 5};
    }
  }
  EXPECT_GT(refused, 5);
}

}  // namespace
}  // namespace heddle
