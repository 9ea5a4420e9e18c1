// The search finds the front that trying every plan finds. Its bounds are not too high.
#include <set>

#include <gtest/gtest.h>

#include "heddle/run/models/model.h"
#include "heddle/search/arrangement/pipeline_search.h"
#include "heddle/search/arrangement/plan_search.h"

namespace heddle {
namespace {

struct Case {
  const char* flavor;
  int64_t devices;
  int64_t global_batch;
  Bytes budget;
};

search::SearchedModel Searched(const run::ModelConfig& config) {
  search::SearchedModel out;
  out.layers = config.n_layers;
  out.small_layers = 2;
  out.seq_len = 512;
  out.supports = [config](const search::Arrangement& arrangement) {
    int64_t parts = arrangement.tensor * (arrangement.context_heads ? arrangement.context : 1);
    // A few degrees, so that every point can be tried.
    return arrangement.context <= 2 && config.n_kv_heads % parts == 0;
  };
  out.capture = [config](const search::StepRequest& request) -> Result<Module> {
    run::ModelConfig sized = config;
    sized.n_layers = request.layers;
    run::StepNumerics numerics;
    numerics.compute = DType::kBF16;
    numerics.norms_apart = request.norms_apart;
    numerics.splits_queries = request.splits_queries;
    if (request.micro_batch) numerics.loss_divisor = run::LossDivisor::kGiven;
    HEDDLE_TRY(run::Model model,
               run::MakeModel(sized, {.batch = request.sequences, .seq_len = 512}, numerics));
    run::CaptureOptions capture;
    if (request.updates) capture.optimizer = run::OptimizerOptions();
    capture.accumulate = request.accumulates;
    return run::CaptureModel(model, capture);
  };
  out.preset = [config](const Graph& graph, const search::Arrangement& arrangement) {
    return compile::MakePlan(graph, search::MeshOf(arrangement), config.family->rules(),
                             search::PresetOf(arrangement));
  };
  return out;
}

// Returns the results of trying every point.
std::vector<search::TriedPoint> TryAll(search::PlanSearch& search) {
  std::vector<search::TriedPoint> all;
  for (const search::SearchPoint& point : search.Space()) {
    Result<search::TriedPoint> tried = search.Try(point);
    EXPECT_TRUE(tried.ok()) << Format(tried.diagnostics());
    Result<search::StepOutcome> promised = search.Promise(point);
    EXPECT_TRUE(promised.ok()) << Format(promised.diagnostics());
    // Kernel times are rounded up to nanoseconds, so layers differ by a few.
    constexpr int64_t kRounding = 1000;
    EXPECT_LE(promised->bounds.compute.value, tried->outcome.step.value + kRounding)
        << Format(point);
    EXPECT_NEAR(static_cast<double>(promised->bounds.compute.value),
                static_cast<double>(tried->outcome.bounds.compute.value), kRounding)
        << Format(point);
    EXPECT_LE(promised->bounds.step.value, tried->outcome.step.value + kRounding) << Format(point);
    EXPECT_LE(promised->bounds.peak, tried->outcome.peak) << Format(point);
    EXPECT_EQ(promised->bounds.peak, tried->outcome.bounds.peak) << Format(point);
    // Well within the margin of the search.
    auto near = [](int64_t thought, int64_t is) { return std::abs(thought - is) <= is / 100; };
    EXPECT_TRUE(near(promised->step.value, tried->outcome.step.value)) << Format(point);
    // The search may prune what is promised to be worse by more than 3 %.
    EXPECT_LE(promised->peak.value * 97 / 100, tried->outcome.peak.value) << Format(point);
    Result<search::StepBounds> least = search.LeastBounds(point);
    EXPECT_TRUE(least.ok()) << Format(least.diagnostics());
    EXPECT_LE(least->compute.value, tried->outcome.bounds.compute.value + kRounding)
        << Format(point);
    EXPECT_LE(least->peak, tried->outcome.peak) << Format(point);
    all.push_back(*std::move(tried));
  }
  return all;
}

bool Beats(const search::StepOutcome& a, const search::StepOutcome& b) {
  return a.step <= b.step && a.peak <= b.peak && (a.step < b.step || a.peak < b.peak);
}

// Checks that the front has exactly the plans that fit and that no other plan beats.
void CheckFront(const std::vector<search::TriedPoint>& all,
                const std::vector<search::TriedPoint>& front, Bytes budget) {
  std::map<std::pair<Nanos, Bytes>, std::string> unbeaten;
  for (const search::TriedPoint& tried : all) {
    auto beats = [&](const search::TriedPoint& other) {
      return other.outcome.peak <= budget && Beats(other.outcome, tried.outcome);
    };
    if (tried.outcome.peak <= budget && std::ranges::none_of(all, beats))
      unbeaten.try_emplace({tried.outcome.step, tried.outcome.peak}, Format(tried.point));
  }
  std::map<std::pair<Nanos, Bytes>, std::string> listed;
  for (const search::TriedPoint& tried : front)
    listed.try_emplace({tried.outcome.step, tried.outcome.peak}, Format(tried.point));
  EXPECT_EQ(listed.size(), front.size()) << "two rows have the same figures";
  for (const auto& [figures, name] : unbeaten)
    EXPECT_TRUE(listed.contains(figures)) << name << " is unbeaten, and not listed";
  for (const auto& [figures, name] : listed)
    EXPECT_TRUE(unbeaten.contains(figures)) << name << " is listed, and beaten";
  EXPECT_TRUE(std::ranges::is_sorted(front, {},
                                     [](const search::TriedPoint& t) { return t.outcome.step; }));
}

class Search : public testing::TestWithParam<Case> {};

// Searches with the case's budget, and with the peaks of two unbeaten plans as budgets.
TEST_P(Search, EqualsTryingEverything) {
  const Case& one = GetParam();
  run::ModelConfig config = *run::FindModel("llama3", one.flavor);
  price::CostModel costs = *price::CostModel::Make(*price::LoadCluster("h100-8x"), {});
  search::PlanSearchOptions options{.devices = one.devices,
                                    .global_batch = one.global_batch,
                                    .budget = one.budget,
                                    .automatic = false,
                                    .overlap = false,
                                    .pipelines = false};
  search::PlanSearch search(Searched(config), costs, options);
  std::vector<search::TriedPoint> all = TryAll(search);
  std::set<Bytes> unbeaten;
  for (const search::TriedPoint& tried : all) {
    auto beats = [&](const auto& other) { return Beats(other.outcome, tried.outcome); };
    if (std::ranges::none_of(all, beats)) unbeaten.insert(tried.outcome.peak);
  }
  const Bytes middle = *std::next(unbeaten.begin(), static_cast<int64_t>(unbeaten.size() / 2));
  const std::set<Bytes> budgets{one.budget, middle, *unbeaten.begin()};
  for (Bytes budget : budgets) {
    SCOPED_TRACE(Format(budget));
    options.budget = budget;
    Result<search::SearchResult> found = search::PlanSearch(Searched(config), costs, options).Run();
    auto fits = [&](const search::TriedPoint& tried) { return tried.outcome.peak <= budget; };
    ASSERT_EQ(found.ok(), std::ranges::any_of(all, fits));
    if (!found.ok()) {
      EXPECT_EQ(found.diagnostics()[0].kind, Diag::kInfeasible);
      continue;
    }
    EXPECT_EQ(found->points, all.size());
    CheckFront(all, found->front, budget);
  }
}

struct PipelineCase {
  int64_t devices;
  int64_t global_batch;
  Bytes budget;
};
class Pipelines : public testing::TestWithParam<PipelineCase> {};

// Predictions prune pipelines, so they may be too low, but not too high.
TEST_P(Pipelines, TakeAboutAsPredicted) {
  const PipelineCase& one = GetParam();
  run::ModelConfig config = *run::FindModel("llama3", "debugmodel");
  price::CostModel costs = *price::CostModel::Make(*price::LoadCluster("h100-8x"), {});
  search::SearchedModel model = Searched(config);
  search::ArrangementSpace space{.devices = one.devices,
                                 .global_batch = one.global_batch,
                                 .node_devices = 8,
                                 .supports = model.supports};
  search::PointEvaluator evaluator(std::move(model), costs, "h100-8x", one.global_batch);
  search::PipelineSearch search(evaluator, one.budget);
  std::vector<search::PredictedPipeline> found = search.Run(space);
  ASSERT_FALSE(found.empty());
  EXPECT_GT(search.points(), found.size());
  EXPECT_TRUE(std::ranges::is_sorted(found, {}, &search::PredictedPipeline::step));
  for (const search::PredictedPipeline& predicted : found) {
    Result<search::TriedPoint> tried = evaluator.Try(predicted.point);
    ASSERT_TRUE(tried.ok()) << Format(tried.diagnostics());
    const search::StepOutcome& outcome = tried->outcome;
    SCOPED_TRACE(Format(predicted.point) + ": " + Format(outcome.step) + ", bound " +
                 Format(outcome.bounds.step) + ", " + Format(outcome.peak) + "; predicted " +
                 Format(predicted.step) + ", bound " + Format(predicted.bound) + ", " +
                 Format(predicted.peak));
    EXPECT_LE(predicted.bound, outcome.step);
    EXPECT_LE(outcome.bounds.step, outcome.step);
    EXPECT_LE(search::AtLeast(predicted.step), outcome.step);
    EXPECT_LE(predicted.least_peak(), outcome.peak);
    ASSERT_TRUE(tried->plan.decisions.stages);
    EXPECT_EQ(tried->plan.decisions.stages->first_positions, predicted.point.first_positions);
  }
}

INSTANTIATE_TEST_SUITE_P(All, Pipelines,
                         testing::Values(PipelineCase{8, 32, GiB(1)}, PipelineCase{16, 64, GiB(1)},
                                         PipelineCase{16, 128, MiB(120)},
                                         PipelineCase{4, 8, MiB(150)}));

INSTANTIATE_TEST_SUITE_P(
    All, Search,
    testing::Values(Case{"debugmodel", 1, 2, GiB(1)}, Case{"debugmodel", 8, 8, GiB(1)},
                    Case{"debugmodel", 8, 16, MiB(150)}, Case{"debugmodel", 12, 24, MiB(100)},
                    Case{"debugmodel", 64, 64, MiB(200)}, Case{"debugmodel", 8, 8, MiB(1)}));

}  // namespace
}  // namespace heddle
