// Budgets on random training steps: kept to the byte, never slower for being larger, never slower than a fixed policy, and where all ways
// can be tried, none is faster.
#include <random>

#include <gtest/gtest.h>

#include "heddle/analysis/memory.h"
#include "heddle/budget/search.h"
#include "heddle/ir/verify/parse_module.h"
#include "heddle/ops/ops.h"
#include "heddle/pass/manager.h"
#include "heddle/passes/memory/recompute.h"
#include "heddle/passes/passes.h"
#include "test/checks/random_training.h"

namespace heddle {
namespace {

constexpr uint32_t kSteps = 25;
constexpr int64_t kBudgets = 6;

CostModel Model() { return *CostModel::Make(*LoadCluster("h100-8x"), {}); }

Module Clean(const std::string& text) {
  Result<Module> module = ParseModule(text, "random", Ops());
  EXPECT_TRUE(module.ok()) << text << Format(module.diagnostics());
  EXPECT_TRUE(RunPipeline(*module, *ParsePipeline("clean", Passes())).ok());
  return *std::move(module);
}

Bytes PeakOf(Module marked, const std::string& after) {
  Result<Pipeline> pipeline = ParsePipeline(fmt::format("{}, {}", kCarryOut, after), Passes());
  Result<RunReport> report = RunPipeline(marked, *pipeline);
  EXPECT_TRUE(report.ok()) << Format(report.diagnostics());
  return ComputeMemoryTimeline(marked.graphs[0], Liveness(marked.graphs[0])).peak;
}

TEST(MemorySearch, KeepsItsBudget) {
  CostModel model = Model();
  Pipeline after = *ParsePipeline("fsdp", Passes());
  int between = 0;
  for (uint32_t seed = 0; seed < kSteps; ++seed) {
    Module module = Clean(RandomTraining(seed));
    std::vector<MemoryChoice> curve = *(*MemorySearch::Make(module, after, model))->Sweep();
    Bytes most = curve.front().peak;
    Bytes least = curve.back().peak;
    Nanos last{INT64_MAX};
    for (int64_t i = 0; i <= kBudgets; ++i) {
      Bytes budget = least + Bytes{(most - least).value * i / kBudgets};
      // A search of its own for each, as a user has it.
      auto search = *MemorySearch::Make(module, after, model);
      Result<MemoryChoice> choice = search->Within(budget);
      ASSERT_TRUE(choice.ok()) << seed << Format(choice.diagnostics());
      EXPECT_LE(choice->peak, budget) << seed << " " << choice->policy;
      EXPECT_EQ(choice->peak, PeakOf(search->trials().Marked(choice->marks), "fsdp")) << seed;
      EXPECT_LE(choice->step, last) << seed << " " << choice->policy;
      EXPECT_LE(choice->bound, choice->step) << seed << " " << choice->policy;
      last = choice->step;
      between += choice->peak != most && choice->peak != least;
    }
    for (const MemoryChoice& fixed : curve) {
      auto search = *MemorySearch::Make(module, after, model);
      EXPECT_LE(search->Within(fixed.peak)->step, fixed.step) << seed << " " << fixed.policy;
    }
  }
  EXPECT_GT(between, 0);
}

TEST(MemorySearch, SaysWhatIsLeast) {
  CostModel model = Model();
  Pipeline after = *ParsePipeline("fsdp", Passes());
  Module module = Clean(RandomTraining(1));
  Result<MemoryChoice> choice = (*MemorySearch::Make(module, after, model))->Within(Bytes{1});
  ASSERT_FALSE(choice.ok());
  EXPECT_EQ(choice.diagnostics()[0].kind, Diag::kInfeasible);
}

// A step of few values: products, sums and functions of matrices of two widths, some of them summed over ranks, read by backward in any
// order. So many values of forward at most.
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
  // Every other step has a loss, for which forward runs all that it is made of.
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
      // Nothing that forward has, so that nothing is computed twice.
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

// The fastest of all ways to keep or recompute values, by trying every one.
std::optional<Nanos> Exhaustive(Trials& trials, const std::vector<ValueId>& decisions,
                                const std::vector<ValueId>& views, Bytes budget) {
  std::optional<Nanos> best;
  for (uint64_t subset = 0; subset < uint64_t{1} << decisions.size(); ++subset) {
    Marks marks(trials.graph().value_count(), Keep::kDefault);
    for (ValueId v : views) marks[v.index()] = Keep::kPreferRecompute;
    for (size_t i = 0; i < decisions.size(); ++i) {
      bool again = (subset >> i & 1) != 0;
      marks[decisions[i].index()] = again ? Keep::kPreferRecompute : Keep::kMustSave;
    }
    Result<const MemoryChoice*> choice = trials.Try("subset", marks);
    EXPECT_TRUE(choice.ok());
    if ((*choice)->peak <= budget && (!best || (*choice)->step < *best)) best = (*choice)->step;
  }
  return best;
}

// Up to 12 decisions: every subset goes through the passes and is simulated.
TEST(MemorySearch, IsTheBestOfAllOfFew) {
  CostModel model = Model();
  Pipeline after = *ParsePipeline("clean", Passes());
  int decided = 0;
  int tight = 0;
  int equal = 0;
  for (uint32_t seed = 0; seed < 150; ++seed) {
    // Most of them small: a decision more is twice the work.
    size_t values = seed % 30 == 29 ? 12 : 3 + seed % 7;
    Module module = Clean(SmallStep(seed, values, seed % 2 == 1));
    Weights weights(module.graphs[0]);
    RunTimes times = *FindRunTimes(module, model);
    PricedCut cut(module.graphs[0], weights, times.all);
    if (cut.decisions().empty()) continue;
    ++decided;
    Trials trials(module, after, model);
    Marks none(module.graphs[0].value_count(), Keep::kDefault);
    Bytes most = (*trials.Try("none", none))->peak;
    std::optional<Nanos> free = Exhaustive(trials, cut.decisions(), {}, most);
    Bytes least = trials.Smallest().peak;
    for (int64_t part : {0, 1, 2}) {
      Bytes budget = least + Bytes{(most - least).value * part / 3};
      std::optional<Nanos> best = Exhaustive(trials, cut.decisions(), {}, budget);
      ASSERT_TRUE(best);
      Result<MemoryChoice> choice = (*MemorySearch::Make(module, after, model))->Within(budget);
      ASSERT_TRUE(choice.ok()) << seed << Format(choice.diagnostics());
      EXPECT_LE(choice->peak, budget);
      // The host may be faster still.
      EXPECT_LE(choice->step, *best) << "seed " << seed << ", budget " << Format(budget);
      if (choice->offloaded == Bytes{}) {
        EXPECT_EQ(choice->step, *best) << "seed " << seed << ", budget " << Format(budget) << ", "
                                       << cut.decisions().size() << " decisions";
        ++equal;
      }
      tight += *best > *free;
    }
  }
  EXPECT_GT(decided, 120);
  EXPECT_GT(tight, 100);
  EXPECT_GT(equal, 200);
}

// As many decisions as are searched: no subset of hundreds is better, among them all that differ from the choice in one
// decision.
TEST(MemorySearch, IsNotBeatenByAnyOfMany) {
  CostModel model = Model();
  Pipeline after = *ParsePipeline("clean", Passes());
  size_t most_decisions = 0;
  int searched = 0;
  for (uint32_t seed = 0; searched < 6; ++seed) {
    Module module = Clean(SmallStep(2000 + seed, 14 + seed % 20, true));
    Weights weights(module.graphs[0]);
    RunTimes times = *FindRunTimes(module, model);
    PricedCut cut(module.graphs[0], weights, times.all);
    size_t count = cut.decisions().size();
    if (count < 12 || count > 25) continue;
    ++searched;
    most_decisions = std::max(most_decisions, count);
    auto search = *MemorySearch::Make(module, after, model);
    std::vector<MemoryChoice> curve = *search->Sweep();
    Bytes budget = curve.back().peak + Bytes{(curve.front().peak - curve.back().peak).value / 2};
    MemoryChoice choice = *search->Within(budget);
    EXPECT_EQ(choice.bound, choice.step);
    auto expect_no_better = [&](const Marks& marks) {
      const MemoryChoice* other = *search->trials().Try("", marks);
      if (other->peak <= budget) {
        EXPECT_GE(other->step, choice.step) << seed;
      }
    };
    std::mt19937_64 random(seed);
    for (int i = 0; i < 200; ++i) {
      uint64_t again = random();
      Marks marks(module.graphs[0].value_count(), Keep::kDefault);
      for (size_t d = 0; d < count; ++d)
        marks[cut.decisions()[d].index()] =
            (again >> d & 1) != 0 ? Keep::kPreferRecompute : Keep::kMustSave;
      expect_no_better(marks);
    }
    for (ValueId v : cut.decisions()) {
      Marks marks = choice.marks;
      bool kept = marks[v.index()] != Keep::kPreferRecompute;
      marks[v.index()] = kept ? Keep::kPreferRecompute : Keep::kMustSave;
      expect_no_better(marks);
    }
  }
  EXPECT_GT(most_decisions, 16U);
}

// What passes and simulator make of a choice where every wait stands behind its launch, written a second time and fast: time is the sum of
// what runs, a launch and its wait being one; memory follows from who reads what last.
class SmallOracle {
 public:
  SmallOracle(const Graph& graph, const GraphCosts& costs, const std::vector<ValueId>& decisions)
      : graph_(graph), costs_(costs), decisions_(decisions), bit_(graph.value_count(), -1) {
    for (size_t i = 0; i < decisions.size(); ++i) bit_[decisions[i].index()] = static_cast<int>(i);
    for (const Input& input : graph.inputs()) inputs_ += BytesOf(input.value);
    is_output_.resize(graph.value_count());
    for (const Output& output : graph.outputs()) is_output_[output.value.index()] = true;
  }

  struct Cost {
    Nanos time;
    Bytes peak;
  };
  Cost Of(uint64_t again) {
    runs_.clear();
    copied_.assign(graph_.value_count(), false);
    for (NodeId node : graph_.nodes()) {
      if (graph_.types()[graph_.type(graph_[node].first_result)].async) continue;
      if (graph_[node].phase != Phase::kForward) {
        for (ValueId v : graph_.operands(node)) Copy(v, again);
      }
      runs_.push_back({node, graph_[node].phase != Phase::kForward, false});
    }
    return Measure(again);
  }

 private:
  struct Run {
    NodeId node;
    bool behind;
    bool is_copy;
  };

  Bytes BytesOf(ValueId v) const { return graph_.types().bytes(graph_.type(v)); }
  bool IsAgain(ValueId v, uint64_t again) const {
    return bit_[v.index()] >= 0 && (again >> bit_[v.index()] & 1) != 0;
  }
  void Copy(ValueId v, uint64_t again) {
    if (!IsAgain(v, again) || copied_[v.index()]) return;
    copied_[v.index()] = true;
    std::vector<ValueId> missing{v};
    for (size_t i = 0; i < missing.size(); ++i) {
      for (ValueId needed : NeededAgain(graph_, graph_[missing[i]].producer)) {
        if (!IsAgain(needed, again) || copied_[needed.index()]) continue;
        copied_[needed.index()] = true;
        missing.push_back(needed);
      }
    }
    std::ranges::sort(missing);
    for (ValueId one : missing) runs_.push_back({graph_[one].producer, true, true});
  }

  // Two places for each value: as forward made it, and as it was made again.
  size_t PlaceOf(ValueId v, const Run& reader, uint64_t again) const {
    return v.index() * 2 + (reader.behind && IsAgain(v, again) ? 1 : 0);
  }

  Cost Measure(uint64_t again) {
    std::vector<int64_t> last(graph_.value_count() * 2, -1);
    std::vector<bool> gone(runs_.size());
    // From the end: what nobody reads does not run.
    for (size_t i = runs_.size(); i-- > 0;) {
      const Run& run = runs_[i];
      ValueId made = graph_[run.node].first_result;
      size_t place = made.index() * 2 + (run.is_copy ? 1 : 0);
      bool kept_to_the_end = is_output_[made.index()] && !run.is_copy;
      if (last[place] < 0 && !kept_to_the_end) {
        gone[i] = true;
        continue;
      }
      for (ValueId v : NeededAgain(graph_, run.node)) {
        size_t read = PlaceOf(v, run, again);
        last[read] = std::max(last[read], static_cast<int64_t>(i));
      }
    }
    Cost cost{costs_.around, inputs_};
    Bytes live = inputs_;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (gone[i]) continue;
      const Run& run = runs_[i];
      cost.time += costs_.nodes[run.node].compute;
      if (NodeId launch = LaunchOf(graph_, run.node))
        cost.time += costs_.nodes[launch].pack + costs_.nodes[launch].collective.total();
      live += BytesOf(graph_[run.node].first_result);
      cost.peak = std::max(cost.peak, live);
      std::vector<size_t> read;
      for (ValueId v : NeededAgain(graph_, run.node)) {
        size_t place = PlaceOf(v, run, again);
        bool ends = graph_[v].producer && last[place] == static_cast<int64_t>(i) &&
                    !is_output_[v.index()] && std::ranges::find(read, place) == read.end();
        if (!ends) continue;
        read.push_back(place);
        live -= BytesOf(v);
      }
    }
    return cost;
  }

  const Graph& graph_;
  const GraphCosts& costs_;
  const std::vector<ValueId>& decisions_;
  std::vector<int> bit_;
  std::vector<bool> is_output_;
  Bytes inputs_;
  std::vector<Run> runs_;
  std::vector<bool> copied_;
};

// Up to 18 decisions, by the second simulator, which is first held against the real one.
TEST(MemorySearch, IsTheBestOfAllOfMore) {
  CostModel model = Model();
  Pipeline after = *ParsePipeline("clean", Passes());
  int searched = 0;
  size_t most_decisions = 0;
  for (uint32_t seed = 0; searched < 50; ++seed) {
    // Most of them small: a decision more is twice the work.
    bool is_large = seed % 16 == 15;
    size_t values = is_large ? 26 + seed % 9 : 14 + seed % 10;
    Module module = Clean(SmallStep(1000 + seed, values, seed % 3 != 0));
    Weights weights(module.graphs[0]);
    RunTimes times = *FindRunTimes(module, model);
    PricedCut cut(module.graphs[0], weights, times.all);
    size_t count = cut.decisions().size();
    if (count < 8 || count > (is_large ? 18 : 14)) continue;
    ++searched;
    most_decisions = std::max(most_decisions, count);
    GraphCosts costs = *model.Price(module, module.graphs[0]);
    SmallOracle oracle(module.graphs[0], costs, cut.decisions());
    Trials trials(module, after, model);
    std::mt19937_64 random(seed);
    for (int i = 0; i < 20; ++i) {
      uint64_t again = i == 0 ? 0 : random() & ((uint64_t{1} << count) - 1);
      Marks marks(module.graphs[0].value_count(), Keep::kDefault);
      for (size_t d = 0; d < count; ++d)
        marks[cut.decisions()[d].index()] =
            (again >> d & 1) != 0 ? Keep::kPreferRecompute : Keep::kMustSave;
      const MemoryChoice* choice = *trials.Try("", marks);
      ASSERT_EQ(oracle.Of(again).time, choice->step) << seed << " " << again;
      ASSERT_EQ(oracle.Of(again).peak, choice->peak) << seed << " " << again;
    }
    std::vector<SmallOracle::Cost> all;
    for (uint64_t again = 0; again < uint64_t{1} << count; ++again) all.push_back(oracle.Of(again));
    Bytes least = std::ranges::min(all, {}, &SmallOracle::Cost::peak).peak;
    for (int64_t part : {0, 1, 2}) {
      Bytes budget = least + Bytes{(all[0].peak - least).value * part / 3};
      Nanos best{INT64_MAX};
      for (const SmallOracle::Cost& cost : all) {
        if (cost.peak <= budget) best = std::min(best, cost.time);
      }
      Result<MemoryChoice> choice = (*MemorySearch::Make(module, after, model))->Within(budget);
      ASSERT_TRUE(choice.ok()) << seed << Format(choice.diagnostics());
      EXPECT_LE(choice->step, best) << seed << " " << Format(budget);
      if (choice->offloaded == Bytes{}) {
        EXPECT_EQ(choice->step, best) << seed << " " << Format(budget) << " " << count;
      }
    }
  }
  EXPECT_GT(most_decisions, 16U);
}

}  // namespace
}  // namespace heddle
