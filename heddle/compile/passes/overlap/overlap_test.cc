// Invariants of schedules of random graphs, and buckets compared with exhaustive search.
#include <random>

#include <gtest/gtest.h>

#include "heddle/compile/passes/overlap/buckets/bucket_dp.h"
#include "heddle/compile/passes/overlap/buckets/bucket_moves.h"
#include "heddle/compile/passes/overlap/check_schedule.h"
#include "heddle/compile/passes/overlap/order/range_peaks.h"
#include "heddle/compile/passes/overlap/overlap.h"
#include "heddle/core/base/test/extent.h"
#include "heddle/core/ir/check/check_module.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/sim/test/random_graph.h"

namespace heddle::compile {
namespace {

const price::CostModel& SmallModel() {
  static const price::CostModel model = *price::CostModel::Make(
      *price::ParseCluster(price::kSmallCluster, "small.json"), price::CostOptions{});
  return model;
}

Result<OverlapResult> Schedule(Module& module, const OverlapOptions& options,
                               const price::SimulateOptions& sim = {}) {
  PassContext context(module.mesh);
  return Overlap(module, module.graphs[0], SmallModel(), sim, options, context);
}

TEST(Overlap, RandomGraphs) {
  size_t faster = 0;
  const uint32_t graphs = Extent(400, 2000);
  for (uint32_t seed = 0; seed < graphs; ++seed) {
    Module module = *ParseModule(price::RandomGraphText(seed, 10 + seed % 90), "random", Ops());
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
    price::GraphCosts costs = *SmallModel().Price(scheduled, scheduled.graphs[0]);
    price::SimGraph sim(scheduled.graphs[0], costs);
    EXPECT_EQ(price::Replay(sim, price::TimelineOptions(SmallModel(), {})).outcome(), result->after)
        << seed;
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
    const Module module =
        *ParseModule(price::RandomGraphText(seed, 10 + seed % 90), "random", Ops());
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
    Module module = *ParseModule(price::RandomGraphText(seed, 60), "random", Ops());
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

// A training step with layers of random sizes: sharded weights, a tensor-parallel sum in each
// layer, and gradients to reduce.
std::string RandomStepText(uint32_t seed, size_t layers) {
  std::mt19937 random(seed);
  auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  const size_t rows = 8 << pick(4);
  std::string inputs = fmt::format("%h0: f32[{},16] batch \"x\"", rows);
  std::string outputs;
  std::string forward;
  std::string backward;
  for (size_t i = 0; i < layers; ++i) {
    const size_t width = 16 << pick(4);
    inputs +=
        fmt::format(", %v{0}: f32[8,{1}] param {2} \"v{0}\", %w{0}: f32[{3},16] param {4} \"w{0}\"",
                    i, width, 2 * i, width / 2, 2 * i + 1);
    forward += fmt::format(
        "  %a{0}! = comm.all_gather(%v{0}, over=[dp], why=unshard) : async f32[16,{1}]\n"
        "  %a{0} = comm.wait(%a{0}!) : f32[16,{1}]\n"
        "  %m{0} = aten.mm(%h{0}, %a{0}) : f32[{3},{1}]\n"
        "  %s{0} = aten.silu(%m{0}) : f32[{3},{1}]\n"
        "  %b{0}! = comm.all_gather(%w{0}, over=[dp], why=unshard) : async f32[{1},16]\n"
        "  %b{0} = comm.wait(%b{0}!) : f32[{1},16]\n"
        "  %n{0} = aten.mm(%s{0}, %b{0}) : f32[{3},16]\n"
        "  %r{0}! = comm.all_reduce(%n{0}, over=[tp], why=tensor) : async f32[{3},16]\n"
        "  %r{0} = comm.wait(%r{0}!) : f32[{3},16]\n"
        "  %h{2} = aten.add.Tensor(%r{0}, %h{0}) : f32[{3},16]\n",
        i, width, i + 1, rows);
    outputs +=
        fmt::format("{}grad {} %f{}, grad {} %g{}", i == 0 ? "" : ", ", 2 * i, i, 2 * i + 1, i);
    std::string back = fmt::format(
        "  %x{0} = aten.t(%s{0}) : f32[{1},{3}]\n"
        "  %e{0} = aten.mm(%x{0}, %h{4}) : f32[{1},16]\n"
        "  %g{0}! = comm.reduce_scatter(%e{0}, over=[dp], why=grad) : async f32[{2},16]\n"
        "  %g{0} = comm.wait(%g{0}!) : f32[{2},16]\n"
        "  %y{0} = aten.t(%h{0}) : f32[16,{3}]\n"
        "  %d{0} = aten.mm(%y{0}, %m{0}) : f32[16,{1}]\n"
        "  %f{0}! = comm.reduce_scatter(%d{0}, over=[dp], why=grad) : async f32[8,{1}]\n"
        "  %f{0} = comm.wait(%f{0}!) : f32[8,{1}]\n",
        i, width, width / 2, rows, layers);
    backward.insert(0, back);
  }
  return fmt::format(
      "heddle 1 local\nmesh [dp=2, tp=2]\ngraph @g({}) -> ({}) {{\n fwd:\n{} bwd:\n{}}}\n", inputs,
      outputs, forward, backward);
}

// More effort, or freedom to move matrix products, never makes a step longer.
TEST(Overlap, MoreFreedomIsNeverSlower) {
  const uint32_t graphs = Extent(3, 40);
  size_t shorter = 0;
  for (uint32_t seed = 0; seed < graphs; ++seed) {
    // Graphs above 2,000 nodes are searched in steps that depend on each other.
    Result<Module> parsed = ParseModule(RandomStepText(seed, 115), "random", Ops());
    ASSERT_TRUE(parsed.ok()) << Format(parsed.diagnostics());
    Nanos steps[2][2];
    for (size_t effort = 0; effort < 2; ++effort) {
      for (size_t reorder = 0; reorder < 2; ++reorder) {
        OverlapOptions options;
        options.effort = effort == 0 ? Effort::kFast : Effort::kNormal;
        options.reorder_compute = reorder == 1;
        Module scheduled = *parsed;
        Result<OverlapResult> result = Schedule(scheduled, options);
        ASSERT_TRUE(result.ok()) << seed << ": " << Format(result.diagnostics());
        steps[effort][reorder] = result->after.makespan;
        EXPECT_LE(steps[effort][reorder], steps[effort][0]) << seed << ", " << effort;
        EXPECT_LE(steps[effort][reorder], steps[0][reorder]) << seed << ", " << effort;
      }
    }
    shorter += steps[1][1] < steps[0][0];
  }
  EXPECT_GT(shorter, 0U);
}

// A wait allocates nothing, because its results are the buffers that its collective wrote. Each
// storage ends after its last reader.
// storage ends after its last reader.
Bytes PeakOfStorages(const Graph& graph) {
  Liveness liveness(graph);
  std::vector<Bytes> born(graph.node_count() + 1);
  std::vector<Bytes> gone(graph.node_count() + 1);
  std::vector<size_t> last(liveness.storages().size());
  for (NodeId id : graph.nodes()) {
    auto touch = [&](ValueId v) {
      if (v) last[liveness.of(v).index()] = id.index() + 1;
    };
    for (ValueId v : graph.operands(id)) touch(v);
    for (ValueId v : graph.results(id)) touch(v);
  }
  for (const Output& output : graph.outputs()) last[liveness.of(output.value).index()] = 0;
  for (StorageId id : liveness.storages().ids()) {
    const Storage& storage = liveness.storages()[id];
    if (storage.space != Space::kDevice) continue;
    born[storage.birth ? storage.birth.index() + 1 : 0] += storage.bytes;
    if (last[id.index()] > 0) gone[last[id.index()]] += storage.bytes;
  }
  Bytes live = born[0];
  Bytes peak = live;
  for (size_t i = 1; i < born.size(); ++i) {
    live += born[i];
    peak = std::max(peak, live);
    live -= gone[i];
  }
  return peak;
}

TEST(Overlap, SchedulesOfStudiesNeedNoMoreMemory) {
  const uint32_t graphs = Extent(200, 2000);
  for (uint32_t seed = 0; seed < graphs; ++seed) {
    Module module = *ParseModule(price::RandomGraphText(seed, 10 + seed % 90), "random", Ops());
    const Bytes before = PeakOfStorages(module.graphs[0]);
    price::SimulateOptions sim;
    sim.memory = {.inputs = price::InputMemory::kFreed, .packed_copies = true};
    Result<OverlapResult> result = Schedule(module, {}, sim);
    ASSERT_TRUE(result.ok()) << seed << ": " << Format(result.diagnostics());
    EXPECT_LE(PeakOfStorages(module.graphs[0]), before) << seed;
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
    return price::BucketCost{{many ? bytes / 4 : 0}, {latency + bytes * 2}, {many ? bytes / 3 : 0}};
  };
  return problem;
}

// Step time with buckets that begin at these jobs; INT64_MAX if one exceeds its memory.
Nanos StepWith(const BucketProblem& problem, const std::vector<size_t>& begins) {
  const std::vector<BucketJob>& jobs = problem.jobs;
  Nanos free;
  Nanos delay;
  auto run_others = [&](Nanos length, Nanos due) {
    free += length;
    if (due.value != INT64_MAX) delay = std::max(delay, free - due);
  };
  for (size_t b = 0; b < begins.size(); ++b) {
    const size_t begin = begins[b];
    const size_t end = b + 1 < begins.size() ? begins[b + 1] : jobs.size();
    Bytes room{INT64_MAX};
    Bytes held;
    Nanos ready;
    Nanos others;
    for (size_t i = begin; i < end; ++i) {
      room = std::min(room, jobs[i].room);
      held += jobs[i].held;
      if (i > begin) others += jobs[i].others;
    }
    if (end - begin > 1 && held > room) return {INT64_MAX};
    for (size_t i = 0; i < end; ++i) ready = std::max(ready, jobs[i].release);
    // Earlier jobs keep their memory until their deadlines.
    for (size_t i = begin; i-- > 0;) {
      held += jobs[i].held;
      if (held <= room) continue;
      if (jobs[i].deadline.value != INT64_MAX) ready = std::max(ready, jobs[i].deadline);
      break;
    }
    const price::BucketCost cost = problem.price(begin, end);
    const Nanos start = ready + delay + cost.ahead;
    run_others(jobs[begin].others, jobs[begin].others_due);
    free = std::max(free, start) + cost.length;
    delay += cost.ahead + cost.behind;
    if (jobs[begin].deadline.value != INT64_MAX)
      delay = std::max(delay, free - jobs[begin].deadline + cost.behind);
    run_others(others, jobs[end - 1].others_due);
  }
  run_others(problem.others, problem.others_due);
  return std::max(free, problem.compute + delay);
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
  // The last bucket has no later one to move members to.
  EXPECT_EQ(WithShorter(graph, buckets, 1), (std::vector<Buckets>{{{g[0], g[1], g[2]}}}));

  Graph merged = graph;
  PassContext context(module.mesh);
  ASSERT_EQ(MergeBuckets(merged, context, buckets), Changed::kYes);
  price::GraphCosts costs = *SmallModel().Price(module, merged);
  price::SimGraph sim(merged, costs);
  price::Timeline timeline = price::MakeTimeline(sim, price::TimelineOptions(SmallModel(), {}));
  EXPECT_EQ(MostExposed(graph, buckets, merged, timeline), 0U);
  for (price::CollectiveTimes& times : timeline.collectives) times.exposed = {};
  EXPECT_EQ(MostExposed(graph, buckets, merged, timeline), buckets.size());
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

// Each edit breaks a graph in one way, which the checker must detect.
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
}  // namespace heddle::compile
