// Schedules of every family, unrolled from a step with four layers.
#include <gtest/gtest.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/pipeline/unroll.h"
#include "heddle/core/analysis/launch.h"
#include "heddle/core/analysis/transfers.h"
#include "heddle/core/ir/check/check_module.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

constexpr int64_t kLayers = 4;

// A chain of matrix products. Layer i has the parameter i, gathered over `dp`.
std::string StepText(int64_t ranks) {
  std::string inputs = "%x: f32[2,8] batch \"x\"";
  std::string forward;
  std::string backward;
  std::string reduced;
  std::string outputs = "loss %l";
  std::string grads;
  std::string updates;
  for (int64_t i = 0; i < kLayers; ++i) {
    std::string h = i == 0 ? "%x" : fmt::format("%h{}", i - 1);
    inputs += fmt::format(", %w{0}: f32[4,8] param {0} \"layers.{0}.w\"", i);
    forward += fmt::format(
        "  %g{0} = comm.all_gather(%w{0}, over=[dp], why=unshard) : async f32[8,8] @layers.{0}\n"
        "  %f{0} = comm.wait(%g{0}) : f32[8,8] @layers.{0}\n"
        "  %h{0} = aten.mm({1}, %f{0}) : f32[2,8] @layers.{0}\n",
        i, h);
    outputs += fmt::format(", grad {0} %r{0}, update %w{0} -> %n{0}", i);
    grads += fmt::format("{}%r{}", i == 0 ? "" : ", ", i);
    updates += fmt::format(
        "  %m{0} = aten.mul.Tensor(%r{0}, %norm) : f32[4,8] @layers.{0}\n"
        "  %n{0} = aten.sub.Tensor(%w{0}, %m{0}) : f32[4,8] @layers.{0}\n",
        i);
  }
  for (int64_t i = kLayers; i-- > 0;) {
    std::string h = i == 0 ? "%x" : fmt::format("%h{}", i - 1);
    backward += fmt::format(
        "  %t{0} = aten.t({1}) : f32[8,2] @layers.{0}\n"
        "  %dw{0} = aten.mm(%t{0}, %d{0}) : f32[8,8] @layers.{0}\n"
        "  %s{0} = comm.reduce_scatter(%dw{0}, over=[dp], why=grad) : async f32[4,8] @layers.{0}\n"
        "  %r{0} = comm.wait(%s{0}) : f32[4,8] @layers.{0}\n",
        i, h);
    if (i == 0) continue;
    backward += fmt::format(
        "  %ft{0} = aten.t(%f{0}) : f32[8,8] @layers.{0}\n"
        "  %d{1} = aten.mm(%d{0}, %ft{0}) : f32[2,8] @layers.{0}\n",
        i, i - 1);
  }
  return fmt::format(
      "heddle 1 local\nmesh [pp={} pipeline, dp=2]\ngraph @step({}) -> ({}, metric \"grad_norm\" "
      "%norm) {{\n fwd:\n{}  %l = aten.sum(%h3) : f32[] @loss\n bwd:\n  %d3 = "
      "aten.ones_like(%h3) : f32[2,8] @loss\n{} opt:\n  %q = heddle.squared_norm({}) : f32[4]\n  "
      "%norm = aten.sum(%q) : f32[]\n{}}}\n",
      ranks, inputs, outputs, forward, backward, grads, updates);
}

Module ParseStep(int64_t ranks) {
  Result<Module> module = ParseModule(StepText(ranks), "step.hd", Ops());
  HEDDLE_CHECK(module.ok(), Format(module.diagnostics()));
  return *std::move(module);
}

struct Shape {
  std::string_view family;
  int64_t ranks;
  std::vector<int64_t> first_positions;
  int64_t micro_batches;
};

Module Unrolled(const Shape& shape) {
  Module module = ParseStep(shape.ranks);
  Result<PipelineSchedule> schedule = MakeSchedule(
      *FindScheduleFamily(shape.family),
      {shape.ranks, static_cast<int64_t>(shape.first_positions.size()), shape.micro_batches});
  HEDDLE_CHECK(schedule.ok(), Format(schedule.diagnostics()));
  StagePlaces places{shape.first_positions, RanksOfStages(*schedule)};
  Result<StagedStep> staged = StagedStep::Find(module, module.graphs[0], places);
  HEDDLE_CHECK(staged.ok(), Format(staged.diagnostics()));
  Result<std::vector<Graph>> graphs = Unroll(module, AxisId(0), *staged, *schedule);
  HEDDLE_CHECK(graphs.ok(), "unrolled");
  module.graphs = *std::move(graphs);
  return module;
}

const Shape kShapes[] = {
    {"GPipe", 2, {0, 3}, 4},
    {"1F1B", 2, {0, 3}, 4},
    {"1F1B", 4, {0, 2, 3, 4}, 5},
    {"1F1B", 4, {0, 2, 3, 4}, 2},
    {"Interleaved1F1B", 2, {0, 2, 3, 4}, 4},
    {"LoopedBFS", 2, {0, 2, 3, 4}, 5},
    {"ZB-H1", 2, {0, 3}, 4},
    {"InterleavedZeroBubble", 2, {0, 2, 3, 4}, 8},
    {"ZBVZeroBubble", 2, {0, 2, 3, 4}, 5},
    {"DualPipeV", 2, {0, 2, 3, 4}, 8},
};

TEST(Unroll, EveryScheduleIsValidAndFreeOfDeadlocks) {
  for (const Shape& shape : kShapes) {
    Module module = Unrolled(shape);
    Status verified = Verify(module);
    EXPECT_TRUE(verified.ok()) << shape.family << Format(verified.diagnostics()) << Print(module);
    Status transfers = CheckTransfers(module);
    EXPECT_TRUE(transfers.ok()) << shape.family << Format(transfers.diagnostics());
  }
}

// Products run once per micro-batch, and collectives of weights and gradients once per step.
TEST(Unroll, EveryNodeRunsAsOftenAsItShould) {
  for (const Shape& shape : kShapes) {
    Module module = Unrolled(shape);
    std::map<std::string_view, int64_t> count;
    for (const Graph& graph : module.graphs) {
      for (NodeId id : graph.nodes()) ++count[graph.op(id).name()];
    }
    EXPECT_EQ(count["aten.mm"], (3 * kLayers - 1) * shape.micro_batches) << shape.family;
    EXPECT_EQ(count["comm.all_gather"], kLayers) << shape.family;
    EXPECT_EQ(count["comm.reduce_scatter"], kLayers) << shape.family;
    EXPECT_EQ(count["comm.send"], count["comm.recv"]) << shape.family;
  }
}

// The names of the products whose gradients are added, in the order of the sum of `param`.
std::vector<std::string> Added(const Module& module, std::string_view sum) {
  std::vector<std::string> names;
  for (const Graph& graph : module.graphs) {
    for (NodeId id : graph.nodes()) {
      if (graph[id].op != op::add_Tensor || !graph.name(graph[id].first_result).starts_with(sum))
        continue;
      if (names.empty()) names.emplace_back(graph.name(graph.operands(id)[0]));
      names.emplace_back(graph.name(graph.operands(id)[1]));
    }
  }
  return names;
}

TEST(Unroll, GradientsAreAddedInAscendingOrder) {
  for (const Shape& shape : kShapes) {
    Module module = Unrolled(shape);
    std::vector<std::string> names = Added(module, "dw0.sum");
    // LoopedBFS runs backward in descending order, so the first product is that of the last
    // micro-batch.
    bool descends = shape.family == "LoopedBFS";
    ASSERT_EQ(names.size(), static_cast<size_t>(shape.micro_batches)) << shape.family;
    for (int64_t b = 0; b < shape.micro_batches; ++b) {
      int64_t number = descends ? shape.micro_batches - 1 - b : b;
      EXPECT_EQ(names[static_cast<size_t>(b)], number == 0 ? "dw0" : fmt::format("dw0_{}", number))
          << shape.family;
    }
  }
}

TEST(Unroll, ATransferOutOfOrderIsFound) {
  Module module = Unrolled(kShapes[1]);
  Graph& graph = module.graphs[0];
  std::vector<NodeId> sends;
  for (NodeId id : graph.nodes()) {
    if (graph[id].op == op::comm_send) sends.push_back(id);
  }
  // Exchanges the tags of two sends.
  std::string text = Print(module);
  auto swap = [&](std::string_view a, std::string_view b) {
    size_t at = text.find(fmt::format("tag=\"{}\"", a));
    size_t other = text.find(fmt::format("tag=\"{}\"", b));
    ASSERT_NE(at, std::string::npos);
    ASSERT_NE(other, std::string::npos);
    text.replace(other + 5, b.size(), a);
    text.replace(at + 5, a.size(), b);
  };
  swap("h1.0", "h1.1");
  Result<Module> changed = ParseModule(text, "step.hd", Ops());
  ASSERT_TRUE(changed.ok()) << Format(changed.diagnostics());
  Status transfers = CheckTransfers(*changed);
  ASSERT_FALSE(transfers.ok());
  EXPECT_EQ(transfers.diagnostics()[0].message,
            "transfer 0 from @step_pp0 to @step_pp1 is sent as `h1.1` but received as `h1.0`");
}

}  // namespace
}  // namespace heddle::compile
