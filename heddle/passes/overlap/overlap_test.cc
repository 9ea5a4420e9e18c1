// Schedules of random graphs: what must hold of every one; and buckets against exhaustive search.
#include <random>

#include <gtest/gtest.h>

#include "heddle/base/test/extent.h"
#include "heddle/ir/verify/parse_module.h"
#include "heddle/ir/verify/verify.h"
#include "heddle/ops/ops.h"
#include "heddle/passes/overlap/buckets/bucket_dp.h"
#include "heddle/passes/overlap/buckets/bucket_moves.h"
#include "heddle/passes/overlap/check_schedule.h"
#include "heddle/passes/overlap/layers/share_layers.h"
#include "heddle/passes/overlap/order/range_peaks.h"
#include "heddle/passes/overlap/overlap.h"
#include "heddle/sim/test/random_graph.h"

namespace heddle {
namespace {

const CostModel& SmallModel() {
  static const CostModel model =
      *CostModel::Make(*ParseCluster(kSmallCluster, "small.json"), CostOptions{});
  return model;
}

Result<OverlapResult> Schedule(Module& module, const OverlapOptions& options) {
  AnalysisCache analyses;
  PassContext context(module.mesh, analyses);
  return Overlap(module, module.graphs[0], SmallModel(), {}, options, context);
}

TEST(Overlap, RandomGraphs) {
  size_t faster = 0;
  const uint32_t graphs = Extent(400, 2000);
  for (uint32_t seed = 0; seed < graphs; ++seed) {
    Module module = *ParseModule(RandomGraphText(seed, 10 + seed % 90), "random", Ops());
    Module scheduled = module;
    OverlapOptions options;
    options.effort = seed % 2 == 0 ? Effort::kFast : Effort::kNormal;
    options.reorder_compute = seed % 3 == 0;
    options.strict = seed % 7 == 0;
    Result<OverlapResult> result = Schedule(scheduled, options);
    ASSERT_TRUE(result.ok()) << seed << ": " << Format(result.diagnostics());
    EXPECT_LE(result->after.makespan, result->before.makespan) << seed;
    EXPECT_LE(result->after.peak, result->before.peak) << seed;
    EXPECT_TRUE(FindErrors(scheduled).empty()) << seed;
    GraphCosts costs = *SmallModel().Price(scheduled, scheduled.graphs[0]);
    SimGraph sim(scheduled.graphs[0], costs);
    EXPECT_EQ(Replay(sim, TimelineOptions(SmallModel(), {})).outcome(), result->after) << seed;
    faster += result->after.makespan < result->before.makespan;
  }
  EXPECT_GT(faster, graphs / 4);
}

// The last number of a message.
Bytes LastNumber(const std::string& message) {
  size_t end = message.find_last_of("0123456789") + 1;
  size_t begin = message.find_last_not_of("0123456789", end - 1) + 1;
  return {std::stoll(message.substr(begin, end - begin))};
}

TEST(Overlap, TheSmallestPeakIsEnough) {
  size_t infeasible = 0;
  for (uint32_t seed = 0; seed < 100; ++seed) {
    const Module module = *ParseModule(RandomGraphText(seed, 10 + seed % 90), "random", Ops());
    OverlapOptions options;
    options.memory.bytes = Bytes{1};
    options.effort = Effort::kFast;
    options.reorder_compute = seed % 2 == 0;
    Module scheduled = module;
    Result<OverlapResult> result = Schedule(scheduled, options);
    if (result.ok()) continue;
    ++infeasible;
    EXPECT_EQ(result.diagnostics()[0].kind, Diag::kInfeasible);
    options.memory.bytes = LastNumber(result.diagnostics()[0].message);
    result = Schedule(scheduled, options);
    ASSERT_TRUE(result.ok()) << seed << ": " << Format(result.diagnostics());
    EXPECT_LE(result->after.peak, *options.memory.bytes) << seed;
    options.memory.bytes->value -= 1;
    scheduled = module;
    EXPECT_FALSE(Schedule(scheduled, options).ok()) << seed;
  }
  EXPECT_GT(infeasible, 50U);
}

TEST(Overlap, MoreMemoryIsNeverSlower) {
  const uint32_t graphs = Extent(15, 40);
  for (uint32_t seed = 0; seed < graphs; ++seed) {
    Module module = *ParseModule(RandomGraphText(seed, 60), "random", Ops());
    Module given = module;
    Bytes peak = Schedule(given, {})->before.peak;
    Nanos last{INT64_MAX};
    for (int64_t share = 8; share <= 32; ++share) {
      OverlapOptions options;
      options.memory.bytes = Bytes{peak.value * share / 16};
      Module scheduled = module;
      Result<OverlapResult> result = Schedule(scheduled, options);
      if (!result.ok()) {
        EXPECT_EQ(result.diagnostics()[0].kind, Diag::kInfeasible);
        EXPECT_EQ(last.value, INT64_MAX) << "less memory was enough, seed " << seed;
        continue;
      }
      EXPECT_LE(result->after.peak, *options.memory.bytes);
      EXPECT_LE(result->after.makespan, last) << seed << " at " << share;
      last = result->after.makespan;
    }
  }
}

BucketProblem RandomProblem(uint32_t seed) {
  std::mt19937 random(seed);
  auto pick = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  BucketProblem problem;
  size_t count = 2 + static_cast<size_t>(pick(11));
  bool gathers = pick(2) == 0;
  Nanos at;
  for (size_t i = 0; i < count; ++i) {
    at += {pick(400)};
    BucketJob job{
        gathers ? Nanos{} : at, gathers ? at : Nanos{INT64_MAX}, {1 + pick(100)}, {}, {}, {}};
    job.held = job.given * 2;
    job.room = {100 + pick(1000)};
    if (pick(3) == 0) job.others = {pick(100)};
    if (gathers && job.others.value > 0) job.others_due = at;
    problem.jobs.push_back(job);
  }
  problem.compute = at + Nanos{pick(400)};
  int64_t latency = pick(300);
  std::vector<BucketJob> jobs = problem.jobs;
  problem.price = [latency, jobs](size_t first, size_t last) {
    int64_t bytes = 0;
    for (size_t i = first; i < last; ++i) bytes += jobs[i].given.value;
    bool many = last - first > 1;
    return BucketCost{{many ? bytes / 4 : 0}, {latency + bytes * 2}, {many ? bytes / 3 : 0}};
  };
  return problem;
}

TEST(Buckets, EqualToExhaustiveSearch) {
  size_t merged = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    BucketProblem problem = RandomProblem(seed);
    std::vector<size_t> chosen = ChooseBuckets(problem);
    Nanos best{INT64_MAX};
    for (uint32_t cuts = 0; cuts < 1U << (problem.jobs.size() - 1); ++cuts) {
      std::vector<size_t> begins{0};
      for (size_t i = 1; i < problem.jobs.size(); ++i) {
        if ((cuts >> (i - 1) & 1) != 0) begins.push_back(i);
      }
      best = std::min(best, StepWith(problem, begins));
    }
    EXPECT_EQ(StepWith(problem, chosen), best) << seed;
    merged += chosen.size() < problem.jobs.size();
  }
  EXPECT_GT(merged, 100U);
}

// Gathers of five weights, and products that need them in turn.
std::string GathersText() {
  std::string inputs = "%x: f32[16,16] batch \"x\"";
  std::string body;
  std::string last = "x";
  for (int i = 0; i < 5; ++i) {
    inputs += fmt::format(", %w{0}: f32[8,16] param {0} \"w{0}\"", i);
    body += fmt::format(
        "  %a{0}! = comm.all_gather(%w{0}, over=[dp], why=unshard) : async f32[16,16]\n", i);
    body += fmt::format("  %a{0} = comm.wait(%a{0}!) : f32[16,16]\n", i);
    body += fmt::format("  %y{0} = aten.mm(%{1}, %a{0}) : f32[16,16]\n", i, last);
    last = fmt::format("y{}", i);
  }
  return fmt::format("heddle 1 local\nmesh [dp=2]\ngraph @g({}) -> (metric %y4) {{\n{}}}\n", inputs,
                     body);
}

TEST(BucketMoves, LaterMembersAreHandedOn) {
  Module module = *ParseModule(GathersText(), "gathers", Ops());
  const Graph& graph = module.graphs[0];
  std::vector<NodeId> g;
  for (NodeId id : graph.nodes()) {
    if (graph[id].op == op::comm_all_gather) g.push_back(id);
  }
  ASSERT_EQ(g.size(), 5U);
  const Buckets buckets{{g[0], g[1], g[2]}, {g[3], g[4]}};
  EXPECT_EQ(WithShorter(graph, buckets, 0),
            (std::vector<Buckets>{{{g[0], g[1]}, {g[2], g[3], g[4]}},
                                  {{g[0], g[1]}, {g[3], g[4]}},
                                  {{g[1], g[2], g[3], g[4]}},
                                  {{g[3], g[4]}, {g[1], g[2]}}}));
  // The last has nobody to hand on to.
  EXPECT_EQ(WithShorter(graph, buckets, 1), (std::vector<Buckets>{{{g[0], g[1], g[2]}}}));

  Graph merged = graph;
  AnalysisCache analyses;
  PassContext context(module.mesh, analyses);
  ASSERT_EQ(MergeBuckets(merged, context, buckets), Changed::kYes);
  GraphCosts costs = *SmallModel().Price(module, merged);
  SimGraph sim(merged, costs);
  Timeline timeline = MakeTimeline(sim, TimelineOptions(SmallModel(), {}));
  EXPECT_EQ(MostExposed(graph, buckets, merged, timeline), 0U);
  for (CollectiveTimes& times : timeline.collectives) times.exposed = {};
  EXPECT_EQ(MostExposed(graph, buckets, merged, timeline), buckets.size());
}

// Layers of a gathered weight, a product and a root. Every gather starts before the product of the layer before it, but for `late`, which starts
// behind it.
std::string LayersText(int count, int late) {
  std::string inputs = "%y0: f32[64,64] batch \"x\"";
  std::string body;
  auto gather = [](int i) {
    return fmt::format(
        "  %a{0}! = comm.all_gather(%w{0}, over=[dp], why=unshard) : async f32[64,64]\n", i);
  };
  for (int i = 0; i < count; ++i) {
    inputs += fmt::format(", %w{0}: f32[32,64] param {0} \"w{0}\"", i);
    if (i == 0) body += gather(0);
    body += fmt::format("  %a{0} = comm.wait(%a{0}!) : f32[64,64]\n", i);
    if (i + 1 < count && i + 1 != late) body += gather(i + 1);
    body += fmt::format("  %m{0} = aten.mm(%y{0}, %a{0}) : f32[64,64]\n", i);
    if (i + 1 < count && i + 1 == late) body += gather(i + 1);
    body += fmt::format("  %y{1} = aten.sqrt(%m{0}) : f32[64,64]\n", i, i + 1);
  }
  return fmt::format("heddle 1 local\nmesh [dp=2]\ngraph @g({}) -> (metric %y{}) {{\n{}}}\n",
                     inputs, count, body);
}

TEST(ShareLayers, OneLayerThatDiffers) {
  Module even = *ParseModule(LayersText(12, -1), "even", Ops());
  Module odd = *ParseModule(LayersText(12, 5), "odd", Ops());
  const Graph& graph = odd.graphs[0];
  std::vector<LayerRun> runs = FindEqualLayers(even.graphs[0]);
  LayerWords words(even.graphs[0], runs, graph);
  ASSERT_EQ(words.runs().size(), 1U);
  std::vector<NodeId> order(graph.nodes().begin(), graph.nodes().end());
  EXPECT_GT(FindShared(words, order).size(), 1U);

  GraphCosts costs = *SmallModel().Price(odd, graph);
  SimGraph sim(graph, costs);
  Replay replay(sim, TimelineOptions(SmallModel(), {}));
  const Outcome before = replay.outcome();
  StepShape shape(graph, sim, Freedom::kLight);
  // Where no step is short enough, nothing changes.
  ShareLayers(words, shape, {Nanos{0}, Bytes{INT64_MAX}}, replay);
  EXPECT_EQ(replay.order(), order);
  ShareLayers(words, shape, {before.makespan, Bytes{INT64_MAX}}, replay);
  EXPECT_LE(replay.outcome().makespan, before.makespan);
  std::vector<SharedLayers> shared = FindShared(words, replay.order());
  ASSERT_EQ(shared.size(), 1U);
  EXPECT_EQ(shared[0].period, 1U);
  EXPECT_GE(shared[0].count() + 2, words.runs()[0].count);
}

TEST(Overlap, EqualLayersHaveOneSchedule) {
  Module module = *ParseModule(LayersText(12, 5), "layers", Ops());
  OverlapOptions options;
  options.buckets.kind = BucketRule::Kind::kNone;
  options.memory = {MiB(1), true};
  Result<OverlapResult> result = Schedule(module, options);
  ASSERT_TRUE(result.ok()) << Format(result.diagnostics());
  EXPECT_LE(result->after.makespan, result->before.makespan);
  size_t shared = 0;
  for (const EqualLayers& layers : result->layers) {
    for (const SharedLayers& one : layers.shared) shared += one.count();
  }
  EXPECT_GE(shared, 3U);
}

TEST(RangePeaks, EqualToPlainSums) {
  std::mt19937 random(1);
  for (size_t size : {1, 2, 7, 64, 100}) {
    std::vector<Bytes> plain(size);
    for (Bytes& b : plain) b = {static_cast<int64_t>(random() % 100)};
    RangePeaks peaks(plain);
    for (int i = 0; i < 200; ++i) {
      size_t first = random() % size;
      size_t last = first + random() % (size - first + 1);
      if (i % 2 == 0) {
        Bytes more{static_cast<int64_t>(random() % 50)};
        peaks.Add(first, last, more);
        for (size_t at = first; at < last; ++at) plain[at] += more;
      }
      Bytes most;
      for (size_t at = first; at < last; ++at) most = std::max(most, plain[at]);
      EXPECT_EQ(peaks.Most(first, last), most);
    }
  }
}

// Each breaks a graph in one way, which the checker must see.
constexpr std::string_view kStep = R"(heddle 1 local
mesh [dp=2]
graph @g(%x: f32[16,16] batch "x", %w: f32[8,16] param 0 "w") -> (%z) {
  %a! = comm.all_gather(%w, over=[dp], why=unshard) : async f32[16,16]
  %y = aten.mm(%x, %x) : f32[16,16]
  %a = comm.wait(%a!) : f32[16,16]
  %z = aten.mm(%y, %a) : f32[16,16]
}
)";
Status CheckAgainst(std::string_view after, Bytes cap = {1 << 20},
                    Freedom freedom = Freedom::kLight) {
  Module was = *ParseModule(std::string(kStep), "was", Ops());
  Module is = *ParseModule(std::string(after), "is", Ops());
  return CheckSchedule(was.graphs[0], is.graphs[0], cap, {}, freedom);
}

std::string Replaced(std::string_view from, std::string_view to) {
  std::string text(kStep);
  size_t at = text.find(from);
  return text.replace(at, from.size(), to);
}

TEST(CheckSchedule, SeesWhatIsWrong) {
  EXPECT_TRUE(CheckAgainst(kStep).ok());
  EXPECT_FALSE(CheckAgainst(kStep, {100}).ok());
  EXPECT_FALSE(CheckAgainst(Replaced("aten.mm(%y, %a)", "aten.mm(%a, %y)")).ok());
  EXPECT_FALSE(CheckAgainst(Replaced("-> (%z)", "-> (%y)")).ok());
  EXPECT_FALSE(
      CheckAgainst(Replaced("  %z = ", "  %more = aten.exp(%a) : f32[16,16]\n  %z = ")).ok());
}

constexpr std::string_view kTwoProducts = R"(heddle 1 local
mesh [dp=2]
graph @g(%x: f32[16,16] batch "x") -> (%a, %b) {
  %a = aten.mm(%x, %x) : f32[16,16]
  %b = aten.mm(%x, %x) : f32[16,16]
}
)";
TEST(CheckSchedule, ProductsKeepTheirOrder) {
  std::string swapped(kTwoProducts);
  size_t first = swapped.find("  %a = ");
  size_t length = swapped.find("  %b = ") - first;
  std::string line = swapped.substr(first, length);
  swapped.erase(first, length);
  swapped.insert(swapped.find('}'), line);
  Module was = *ParseModule(std::string(kTwoProducts), "was", Ops());
  Module is = *ParseModule(swapped, "is", Ops());
  auto check = [&](Freedom freedom) {
    return CheckSchedule(was.graphs[0], is.graphs[0], {1 << 20}, {}, freedom);
  };
  EXPECT_FALSE(check(Freedom::kNone).ok());
  EXPECT_FALSE(check(Freedom::kLight).ok());
  EXPECT_TRUE(check(Freedom::kAll).ok());
}

}  // namespace
}  // namespace heddle
