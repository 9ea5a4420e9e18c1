// The search finds what trying everything finds, and what it prunes by is never above what is true.
#include <gtest/gtest.h>

#include "heddle/models/model.h"
#include "heddle/search/plan_search.h"

namespace heddle {
namespace {

struct Case {
  const char* flavor;
  int64_t devices;
  int64_t global_batch;
  Bytes budget;
};

SearchedModel Searched(const ModelConfig& config) {
  SearchedModel out;
  out.layers = config.n_layers;
  out.small_layers = 2;
  out.may_split = [config](int64_t tensor) { return config.n_kv_heads % tensor == 0; };
  out.capture = [config](const StepRequest& request) -> Result<Module> {
    ModelConfig sized = config;
    sized.n_layers = request.layers;
    StepNumerics numerics;
    numerics.compute = DType::kBF16;
    numerics.norms_apart = request.norms_apart;
    if (request.accumulates) numerics.loss_divisor = LossDivisor::kGiven;
    HEDDLE_TRY(Model model,
               MakeModel(sized, {.batch = request.sequences, .seq_len = 512}, numerics));
    CaptureOptions capture;
    if (request.updates) capture.optimizer = OptimizerOptions();
    capture.accumulate = request.accumulates;
    return CaptureModel(model, capture);
  };
  out.preset = [config](const Graph& graph, const Arrangement& arrangement) {
    return MakePlan(graph, MeshOf(arrangement), config.family->rules(), PresetOf(arrangement));
  };
  return out;
}

// What trying everything finds.
std::vector<TriedPoint> TryAll(PlanSearch& search) {
  std::vector<TriedPoint> all;
  for (const SearchPoint& point : search.Space()) {
    Result<TriedPoint> tried = search.Try(point);
    EXPECT_TRUE(tried.ok()) << Format(tried.diagnostics());
    Result<PointOutcome> promised = search.Promise(point);
    EXPECT_TRUE(promised.ok()) << Format(promised.diagnostics());
    // Kernels are rounded up to nanoseconds one by one, so layers differ by a few.
    constexpr int64_t kRounding = 1000;
    EXPECT_LE(promised->compute.value, tried->outcome.step.value + kRounding) << Format(point);
    EXPECT_NEAR(static_cast<double>(promised->compute.value),
                static_cast<double>(tried->outcome.compute.value), kRounding)
        << Format(point);
    EXPECT_LE(promised->bound.value, tried->outcome.step.value + kRounding) << Format(point);
    EXPECT_LE(promised->floor, tried->outcome.peak) << Format(point);
    EXPECT_EQ(promised->floor, tried->outcome.floor) << Format(point);
    all.push_back(*std::move(tried));
  }
  return all;
}

class Search : public testing::TestWithParam<Case> {};

TEST_P(Search, EqualsTryingEverything) {
  const Case& one = GetParam();
  ModelConfig config = *FindModel("llama3", one.flavor);
  CostModel costs = *CostModel::Make(*LoadCluster("h100-8x"), {});
  PlanSearchOptions options{.devices = one.devices,
                            .global_batch = one.global_batch,
                            .budget = one.budget,
                            .automatic = false,
                            .overlap = false};
  PlanSearch search(Searched(config), costs, options);
  std::vector<TriedPoint> all = TryAll(search);
  const TriedPoint* best = nullptr;
  for (const TriedPoint& tried : all) {
    if (tried.outcome.peak > one.budget) continue;
    if (best == nullptr || tried.outcome.step < best->outcome.step) best = &tried;
  }
  Result<SearchResult> found = PlanSearch(Searched(config), costs, options).Run();
  ASSERT_EQ(found.ok(), best != nullptr);
  if (best == nullptr) {
    EXPECT_EQ(found.diagnostics()[0].kind, Diag::kInfeasible);
    return;
  }
  EXPECT_EQ(found->front[0].outcome.step, best->outcome.step)
      << Format(found->front[0].point) << " instead of " << Format(best->point);
  EXPECT_EQ(found->points, all.size());
  // Nothing of the front is beaten by another of it.
  for (const TriedPoint& listed : found->front) EXPECT_LE(listed.outcome.peak, one.budget);
  for (size_t i = 1; i < found->front.size(); ++i) {
    EXPECT_GE(found->front[i].outcome.step, found->front[i - 1].outcome.step);
    EXPECT_LT(found->front[i].outcome.peak, found->front[i - 1].outcome.peak);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, Search,
    testing::Values(Case{"debugmodel", 1, 2, GiB(1)}, Case{"debugmodel", 8, 8, GiB(1)},
                    Case{"debugmodel", 8, 16, MiB(150)}, Case{"debugmodel", 12, 24, MiB(100)},
                    Case{"debugmodel", 64, 64, MiB(200)}, Case{"debugmodel", 8, 8, MiB(1)}));

}  // namespace
}  // namespace heddle
