// Budgets on random training steps: kept to the byte, never slower for being larger, never slower
// than a fixed policy. Where all ways can be tried, none is faster than the bound.
#include <random>

#include <gtest/gtest.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/memory/recompute.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/analysis/memory.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/search/memory/memory_search.h"
#include "test/checks/random_training.h"

namespace heddle {
namespace {

constexpr uint32_t kSteps = 25;
constexpr int64_t kBudgets = 6;

price::CostModel Model() { return *price::CostModel::Make(*price::LoadCluster("h100-8x"), {}); }

Module Clean(const std::string& text) {
  Result<Module> module = ParseModule(text, "random", Ops());
  EXPECT_TRUE(module.ok()) << text << Format(module.diagnostics());
  EXPECT_TRUE(
      compile::RunPipeline(*module, *compile::ParsePipeline("clean", compile::Passes())).ok());
  return *std::move(module);
}

Bytes PeakOf(Module marked, const std::string& after) {
  Result<compile::Pipeline> pipeline =
      compile::ParsePipeline(fmt::format("{}, {}", compile::kCarryOut, after), compile::Passes());
  Result<compile::RunReport> report = compile::RunPipeline(marked, *pipeline);
  EXPECT_TRUE(report.ok()) << Format(report.diagnostics());
  return ComputeMemoryTimeline(marked.graphs[0], Liveness(marked.graphs[0])).peak;
}

TEST(MemorySearch, KeepsItsBudget) {
  price::CostModel model = Model();
  compile::Pipeline after = *compile::ParsePipeline("fsdp", compile::Passes());
  int between = 0;
  for (uint32_t seed = 0; seed < kSteps; ++seed) {
    Module module = Clean(RandomTraining(seed));
    std::vector<search::MemoryChoice> curve =
        *(*search::MemorySearch::Make(module, after, model))->Sweep();
    Bytes most = curve.front().peak;
    Bytes least = curve.back().peak;
    Nanos last{INT64_MAX};
    for (int64_t i = 0; i <= kBudgets; ++i) {
      Bytes budget = least + Bytes{(most - least).value * i / kBudgets};
      // A separate search per budget, as users run it.
      auto search = *search::MemorySearch::Make(module, after, model);
      Result<search::MemoryChoice> choice = search->FindWithin(budget);
      ASSERT_TRUE(choice.ok()) << seed << Format(choice.diagnostics());
      EXPECT_LE(choice->peak, budget) << seed << " " << choice->policy;
      EXPECT_EQ(choice->peak, PeakOf(search->trials().Marked(choice->marks), "fsdp")) << seed;
      EXPECT_LE(choice->step, last) << seed << " " << choice->policy;
      EXPECT_LE(choice->bound, choice->step) << seed << " " << choice->policy;
      last = choice->step;
      between += choice->peak != most && choice->peak != least;
    }
    for (const search::MemoryChoice& fixed : curve) {
      auto search = *search::MemorySearch::Make(module, after, model);
      EXPECT_LE(search->FindWithin(fixed.peak)->step, fixed.step) << seed << " " << fixed.policy;
    }
  }
  EXPECT_GT(between, 0);
}

TEST(MemorySearch, SaysWhatIsLeast) {
  price::CostModel model = Model();
  compile::Pipeline after = *compile::ParsePipeline("fsdp", compile::Passes());
  Module module = Clean(RandomTraining(1));
  Result<search::MemoryChoice> choice =
      (*search::MemorySearch::Make(module, after, model))->FindWithin(Bytes{1});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.diagnostics()[0].kind, Diag::kInfeasible);
}

// Returns a small step: products, sums and functions of matrices of two widths, some of them summed
// over ranks, read by backward in random order. Forward has at most `values` values.
std::string SmallStep(uint32_t seed, size_t values, bool with_collectives) {
  std::mt19937 random(seed);
  auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  // By width: 0 for 1024 columns, 1 for 2048.
  std::vector<std::vector<std::string>> by_width{{"x"}, {}};
  std::string body = " fwd:\n";
  size_t rows = 256 << pick(4);
  for (size_t i = 0; i < values; ++i) {
    std::string name = fmt::format("v{}", i);
    size_t width = by_width[1].empty() ? 0 : pick(2);
    auto any = [&] { return by_width[width][pick(by_width[width].size())]; };
    std::string type;
    switch (pick(with_collectives ? 5 : 4)) {
      case 0: body += fmt::format("  %{} = aten.sin(%{})\n", name, any()); break;
      case 1: body += fmt::format("  %{} = aten.mul.Tensor(%{}, %{})\n", name, any(), any()); break;
      case 2: body += fmt::format("  %{} = aten.exp(%{})\n", name, any()); break;
      case 3:
        body += fmt::format("  %{} = aten.mm(%{}, %{})\n", name, any(), width == 0 ? "w" : "u");
        width = 1 - width;
        break;
      default:
        body += fmt::format(
            "  %{0}! = comm.all_reduce(%{1}, over=[dp], why=tensor)\n  %{0} = comm.wait(%{0}!)\n",
            name, any());
    }
    by_width[width].push_back(name);
  }
  // Every other step has a loss, for which forward computes all its inputs.
  std::string outputs;
  if (seed % 2 == 0) {
    body += fmt::format("  %loss = aten.sum(%{})\n", by_width[by_width[1].empty() ? 0 : 1].back());
    outputs = "loss %loss";
  }
  body += " bwd:\n";
  for (size_t width = 0; width < 2; ++width) {
    std::string gradient;
    for (size_t i = by_width[width].size(); i-- > 0;) {
      if (pick(3) == 0) continue;
      std::string name = fmt::format("d{}_{}", width, i);
      std::string with = gradient.empty() ? by_width[width][i] : gradient;
      // Uses ops that forward lacks, so that nothing is computed twice.
      body += fmt::format("  %{} = aten.sub.Tensor(%{}, %{})\n", name, with, by_width[width][i]);
      gradient = name;
    }
    if (!gradient.empty())
      outputs += fmt::format("{}metric \"{}\" %{}", outputs.empty() ? "" : ", ", width, gradient);
  }
  return fmt::format(
      "heddle 1 local\nmesh [dp=8]\ngraph @g(%x: f32[{},1024] batch \"x\", %w: f32[1024,2048] "
      "param 0 \"w\", %u: f32[2048,1024] param 1 \"u\") -> ({}) {{\n{}}}\n",
      rows, outputs, body);
}

// Returns the fastest way to keep or recompute values, by exhaustive search.
std::optional<Nanos> Exhaustive(search::Trials& trials, const std::vector<ValueId>& decisions,
                                const std::vector<ValueId>& views, Bytes budget) {
  std::optional<Nanos> best;
  for (uint64_t subset = 0; subset < uint64_t{1} << decisions.size(); ++subset) {
    search::Marks marks(trials.graph().value_count(), Keep::kDefault);
    for (ValueId v : views) marks[v.index()] = Keep::kPreferRecompute;
    for (size_t i = 0; i < decisions.size(); ++i) {
      bool again = (subset >> i & 1) != 0;
      marks[decisions[i].index()] = again ? Keep::kPreferRecompute : Keep::kMustSave;
    }
    Result<const search::MemoryChoice*> choice = trials.Try("subset", marks);
    EXPECT_TRUE(choice.ok());
    if ((*choice)->peak <= budget && (!best || (*choice)->step < *best)) best = (*choice)->step;
  }
  return best;
}

// For up to 12 decisions, every subset runs through the passes and the simulator.
TEST(MemorySearch, NoWayIsFasterThanTheBound) {
  price::CostModel model = Model();
  compile::Pipeline after = *compile::ParsePipeline("clean", compile::Passes());
  int tight = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    // Most steps are small: every decision doubles the work.
    size_t values = seed % 30 == 29 ? 12 : 3 + seed % 7;
    Module module = Clean(SmallStep(seed, values, seed % 2 == 1));
    Weights weights(module.graphs[0]);
    search::RunTimes times = *search::FindRunTimes(module, model);
    search::PricedCut cut(module.graphs[0], weights, times.all);
    if (cut.decisions().empty()) continue;
    search::Trials trials(module, after, model);
    search::Marks none(module.graphs[0].value_count(), Keep::kDefault);
    Bytes most = (*trials.Try("none", none))->peak;
    std::optional<Nanos> free = Exhaustive(trials, cut.decisions(), {}, most);
    Bytes least = trials.Smallest().peak;
    for (int64_t part : {0, 1, 2}) {
      Bytes budget = least + Bytes{(most - least).value * part / 3};
      std::optional<Nanos> best = Exhaustive(trials, cut.decisions(), {}, budget);
      ASSERT_TRUE(best);
      Result<search::MemoryChoice> choice =
          (*search::MemorySearch::Make(module, after, model, /*offloads=*/false))
              ->FindWithin(budget);
      tight += *best > *free;
      // The search does not always reach the minimum peak.
      if (!choice.ok()) continue;
      EXPECT_LE(choice->peak, budget);
      EXPECT_LE(choice->bound, *best) << "seed " << seed << ", budget " << Format(budget);
      EXPECT_GE(choice->step, *best) << "seed " << seed << ", budget " << Format(budget);
    }
  }
  EXPECT_GT(tight, 100);
}

}  // namespace
}  // namespace heddle
