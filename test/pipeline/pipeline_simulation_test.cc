// Simulates the coordinates of pipelines together, with equal costs and random ones.
#include <gtest/gtest.h>

#include <random>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/analysis/launch.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/pipeline/bounds.h"
#include "heddle/price/pipeline/pipeline_simulation.h"
#include "heddle/price/sim/timeline/coupled.h"

namespace heddle::price {
namespace {

// A chain of layers. Each has one product in forward and two in backward; those of layer 0 are both
// part of its weight's gradient.
std::string StepText(int64_t ranks, int64_t layers) {
  std::string inputs = "%x: f32[8,8] batch \"x\"";
  std::string forward;
  std::string backward;
  std::string outputs = "loss %l";
  std::string grads;
  std::string updates;
  for (int64_t i = 0; i < layers; ++i) {
    inputs += fmt::format(", %w{0}: f32[8,8] param {0} \"layers.{0}.w\"", i);
    forward += fmt::format("  %h{0} = aten.mm({1}, %w{0}) : f32[8,8] @layers.{0}\n", i,
                           i == 0 ? "%x" : fmt::format("%h{}", i - 1));
    outputs += fmt::format(", grad {0} %dw{0}, update %w{0} -> %n{0}", i);
    grads += fmt::format("{}%dw{}", i == 0 ? "" : ", ", i);
    updates += fmt::format(
        "  %m{0} = aten.mul.Tensor(%dw{0}, %norm) : f32[8,8] @layers.{0}\n"
        "  %n{0} = aten.sub.Tensor(%w{0}, %m{0}) : f32[8,8] @layers.{0}\n",
        i);
  }
  for (int64_t i = layers; i-- > 0;) {
    backward += fmt::format(
        "  %i{0} = aten.mm(%d{0}, %w{0}) : f32[8,8] @layers.{0}\n"
        "  %dw{0} = aten.mm({1}, %{2}{0}) : f32[8,8] @layers.{0}\n",
        i, i == 0 ? "%x" : fmt::format("%h{}", i - 1), i == 0 ? "i" : "d");
    if (i > 0)
      backward += fmt::format("  %d{0} = aten.neg(%i{1}) : f32[8,8] @layers.{1}\n", i - 1, i);
  }
  return fmt::format(
      "heddle 1 local\nmesh [pp={} pipeline]\ngraph @step({}) -> ({}, metric \"grad_norm\" %norm) "
      "{{\n fwd:\n{}  %l = aten.sum(%h{}) : f32[] @loss\n bwd:\n  %d{} = aten.ones_like(%h{}) : "
      "f32[8,8] @loss\n{} opt:\n  %q = heddle.squared_norm({}) : f32[{}]\n  %norm = aten.sum(%q) "
      ": f32[]\n{}}}\n",
      ranks, inputs, outputs, forward, layers - 1, layers - 1, layers - 1, backward, grads, layers,
      updates);
}

struct Shape {
  std::string_view family;
  int64_t ranks;
  int64_t chunks;
  int64_t micro_batches;

  int64_t stages() const { return ranks * chunks; }
  std::string name() const {
    return fmt::format("{} p{} v{} m{}", family, ranks, chunks, micro_batches);
  }
};

PipelineSchedule ScheduleOf(const Shape& shape) {
  return *MakeSchedule(*FindScheduleFamily(shape.family),
                       {shape.ranks, shape.stages(), shape.micro_batches});
}

// Stage i has layer i.
std::vector<int64_t> FirstPositions(const Shape& shape) {
  std::vector<int64_t> firsts{0};
  for (int64_t stage = 1; stage < shape.stages(); ++stage) firsts.push_back(stage + 1);
  return firsts;
}

Module Unrolled(const Shape& shape) {
  Result<Module> module = ParseModule(StepText(shape.ranks, shape.stages()), "step.hd", Ops());
  HEDDLE_CHECK(module.ok(), Format(module.diagnostics()));
  std::string stages;
  for (int64_t first : FirstPositions(shape))
    stages += fmt::format("{}{}", first ? "/" : "", first);
  Result<compile::Pipeline> passes = compile::ParsePipeline(
      fmt::format("unroll-pipeline{{schedule=\"{}\",micro_batches={},stages={}}}", shape.family,
                  shape.micro_batches, stages),
      compile::Passes());
  HEDDLE_CHECK(passes.ok(), Format(passes.diagnostics()));
  Result<compile::RunReport> run = compile::RunPipeline(*module, *passes);
  HEDDLE_CHECK(run.ok(), Format(run.diagnostics()));
  return *std::move(module);
}

// Sets the time of each product, and of transfers; everything else takes no time.
template <typename Time>
std::vector<Simulation> Simulated(const Module& module, Time time, Nanos hop) {
  std::vector<Simulation> out;
  for (const Graph& graph : module.graphs) {
    GraphCosts costs;
    costs.nodes.resize(graph.node_count());
    std::map<std::pair<OpId, int64_t>, uint32_t> streams;
    for (NodeId id : graph.nodes()) {
      if (graph[id].op == op::mm) costs.nodes[id].compute = time(graph, id);
      if (!IsTransfer(graph, id)) continue;
      bool sends = graph[id].op == op::comm_send;
      int64_t peer = std::get<int64_t>(*graph.attrs(id).Find(sends ? "to" : "from"));
      auto [at, added] = streams.try_emplace({graph[id].op, peer}, streams.size());
      if (added) costs.streams.emplace_back();
      costs.nodes[id].stream = at->second;
      costs.nodes[id].collective = {hop, {}, Links::kNone};
    }
    SimGraph sim(graph, costs);
    out.push_back(Simulation{.nodes = 1,
                             .ranks = module.mesh.ranks(),
                             .memory_cap = {},
                             .peak = {},
                             .costs = std::move(costs),
                             .graph = std::move(sim),
                             .timeline = {},
                             .bounds = {},
                             .path = {},
                             .why = {},
                             .tokens = {},
                             .tokens_per_second = {},
                             .mfu = {}});
  }
  std::vector<const SimGraph*> graphs;
  for (const Simulation& one : out) graphs.push_back(&one.graph);
  std::vector<Timeline> timelines = MakeCoupledTimelines(graphs, FindTransfers(module), {});
  for (size_t i = 0; i < out.size(); ++i) {
    out[i].timeline = std::move(timelines[i]);
    out[i].bounds = FindLowerBounds(module.graphs[i], out[i].graph, out[i].timeline);
    out[i].why = ExplainExposure(module.graphs[i], out[i].graph, out[i].timeline, {});
  }
  return out;
}

// The unit divides by all numbers of stages per rank.
constexpr int64_t kUnit = 60;

PipelineSimulation SimulateEqual(const Shape& shape, Nanos hop = {}) {
  Module module = Unrolled(shape);
  Nanos unit{kUnit / shape.chunks};
  std::vector<Simulation> simulations = Simulated(
      module, [&](const Graph&, NodeId) { return unit; }, hop);
  return DescribePipeline(module, simulations, {std::string(shape.family), FirstPositions(shape)});
}

struct Formula {
  Shape shape;
  // Idle time of each rank, in units.
  double idle;
};

std::vector<Formula> Formulas(int64_t p, int64_t m) {
  auto hops = static_cast<double>(p - 1);
  return {{{"GPipe", p, 1, m}, hops * 3},
          {{"1F1B", p, 1, m}, hops * 3},
          {{"LoopedBFS", p, 2, m}, hops * 3 / 2},
          {{"Interleaved1F1B", p, 2, m}, hops * 3 / 2},
          {{"Interleaved1F1B", p, 4, m}, hops * 3 / 4},
          {{"ZB-H1", p, 1, m}, hops},
          {{"InterleavedZeroBubble", p, 2, m}, hops / 2},
          {{"ZBVZeroBubble", p, 2, m}, hops / 2},
          // A pair takes the formula's time only if its results leave together. Graphs send those
          // of its first action earlier.
          {{"DualPipeV", p, 2, m}, hops / 2}};
}

TEST(PipelineSimulation, EqualCostsTakeTheTimesOfTheFormulas) {
  for (auto [p, m] : {std::pair(2, 4), std::pair(2, 6), std::pair(4, 8)}) {
    for (const auto& [shape, idle] : Formulas(p, m)) {
      PipelineSimulation s = SimulateEqual(shape);
      auto expected = static_cast<int64_t>(idle * kUnit);
      EXPECT_EQ(s.step.value, 3 * m * kUnit + expected) << shape.name();
      EXPECT_EQ(s.bubble.value, expected) << shape.name();
      for (const CoordinateTimes& c : s.coordinates) {
        EXPECT_EQ(c.busy.value, 3 * m * kUnit) << shape.name();
        EXPECT_EQ(c.hop.value, 0) << shape.name();
      }
      EXPECT_LE(s.bound, s.step) << shape.name();
    }
  }
}

TEST(PipelineSimulation, ActionsAreThoseOfTheSchedule) {
  for (const auto& [shape, idle] : Formulas(4, 8)) {
    PipelineSchedule schedule = ScheduleOf(shape);
    PipelineSimulation s = SimulateEqual(shape);
    EXPECT_EQ(s.stages, schedule.stages);
    EXPECT_EQ(s.micro_batches, schedule.micro_batches);
    for (size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
      std::string wanted;
      const std::vector<PipelineAction>& actions = schedule.ranks[rank];
      for (size_t i = 0; i < actions.size(); ++i) {
        PipelineAction action = actions[i];
        action.with_next = false;
        // Stage 0 has no I, and I with its W directly after it is B.
        bool joined = i + 1 < actions.size() && action.work == PipelineWork::kInputGradient &&
                      actions[i + 1].work == PipelineWork::kWeightGradient &&
                      actions[i + 1].stage == action.stage &&
                      actions[i + 1].micro_batch == action.micro_batch;
        if (action.work == PipelineWork::kInputGradient && action.stage == 0) continue;
        if (action.stage == 0 && action.work == PipelineWork::kBackward)
          action.work = PipelineWork::kWeightGradient;
        if (joined) {
          action.work = PipelineWork::kBackward;
          ++i;
        }
        wanted += Token(action) + " ";
      }
      std::string found;
      for (const TimedAction& timed : s.coordinates[rank].actions)
        found += Token(timed.action) + " ";
      EXPECT_EQ(found, wanted) << shape.name();
    }
  }
}

// Receives are launched one action early, so transfers that are shorter than an action begin as
// soon as their values are there.
TEST(PipelineSimulation, HopsTakeTheTimesOfSchedules) {
  for (const auto& [shape, idle] : Formulas(4, 8)) {
    if (shape.family == "DualPipeV") continue;
    StageCost cost{{kUnit / shape.chunks}, {kUnit / shape.chunks}, {kUnit / shape.chunks}};
    PipelineCosts costs{std::vector<StageCost>(static_cast<size_t>(shape.stages()), cost), {7}};
    // The whole backward of stage 0 is W.
    costs.stages[0].weight_gradient += std::exchange(costs.stages[0].input_gradient, Nanos{});
    PipelineSimulation s = SimulateEqual(shape, {7});
    PipelineTimes times = FindPipelineTimes(ScheduleOf(shape), costs);
    // The step ends with the norm of all gradients, which travels between coordinates.
    Nanos last;
    for (const CoordinateTimes& c : s.coordinates) last = std::max(last, c.actions.back().end);
    EXPECT_EQ(last, times.step) << shape.name();
    EXPECT_LE(s.bound, s.step) << shape.name();
  }
}

TEST(PipelineSimulation, BoundsAreBelowRandomPipelines) {
  std::mt19937 random(7);
  for (int round = 0; round < 40; ++round) {
    for (const auto& [shape, idle] : Formulas(2 + round % 3, 2 * (2 + round % 3))) {
      Module module = Unrolled(shape);
      // One time per op and layer, so micro-batches are equal.
      std::map<std::string, Nanos> times;
      std::vector<Simulation> simulations =
          Simulated(module,
                    [&](const Graph& graph, NodeId id) {
                      std::string name(graph.name(graph[id].first_result));
                      auto [at, added] = times.try_emplace(name.substr(0, name.find('_')));
                      if (added) at->second = {static_cast<int64_t>(1 + random() % 50)};
                      return at->second;
                    },
                    {static_cast<int64_t>(random() % 20)});
      PipelineSimulation s =
          DescribePipeline(module, simulations, {std::string(shape.family), FirstPositions(shape)});
      EXPECT_LE(s.bound, s.step) << shape.name();
      EXPECT_GT(s.bound.value, 0);
      std::vector<TimedGraph> timed;
      for (const Simulation& one : simulations) timed.push_back({&one.graph, &one.timeline});
      CriticalPath path = FindCriticalPath(timed, FindTransfers(module));
      EXPECT_EQ(path.compute + path.collective, s.step) << shape.name();
    }
  }
}

TEST(CoupledTimelines, OneGraphTakesItsOwnTime) {
  Result<Module> module = ParseModule(StepText(2, 4), "step.hd", Ops());
  ASSERT_TRUE(module.ok());
  std::vector<Simulation> simulations =
      Simulated(*module, [](const Graph&, NodeId id) { return Nanos{10 + id.index()}; }, {});
  Timeline alone = MakeTimeline(simulations[0].graph, {});
  EXPECT_EQ(simulations[0].timeline.makespan, alone.makespan);
  for (NodeId id : module->graphs[0].nodes())
    EXPECT_EQ(simulations[0].timeline.nodes[id.index()].left, alone.nodes[id.index()].left);
}

}  // namespace
}  // namespace heddle::price
