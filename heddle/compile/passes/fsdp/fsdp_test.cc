// Invariants of the FSDP passes. A pass that breaks one must be detected.
#include <random>
#include <set>

#include <gtest/gtest.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/fsdp/bucket.h"
#include "heddle/core/base/file.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {

extern const PassDef kPassDef_reshard_after_forward;

namespace {

constexpr std::string_view kStep = R"(heddle 1 local
mesh [dp=2]
graph @g(%x: f32[8,16] batch "x", %w: f32[8,16] param 0 "w" unit "u") -> (loss %l, metric %dx) {
 fwd:
  %u! = comm.all_gather(%w, over=[dp], why=unshard, unit="u") : async f32[16,16]
  %u = comm.wait(%u!) : f32[16,16]
  %t = aten.t(%u) : f32[16,16]
  %c = aten.clone(%t) : f32[16,16]
  %y = aten.mm(%x, %c) : f32[8,16]
  %l = aten.sum(%y) : f32[]
 bwd:
  %g = aten.expand(%l, size=[8,16]) : f32[8,16]
  %dx = aten.mm(%g, %c) : f32[8,16]
}
)";

// Makes backward read forward's values again, whose copy has no mark.
Result<Changed> ReadForward(Graph& graph, PassContext&) {
  Rewriter rewriter(graph);
  NodeId last = graph[graph.FindValue("dx")].producer;
  rewriter.SetOperand(last, 1, graph.FindValue("c"));
  return rewriter.Commit();
}
constexpr PassDef kReadForward{.name = "read-forward", .summary = "", .run = Run<ReadForward>};
constexpr const PassDef* kPasses[] = {&kPassDef_reshard_after_forward, &kReadForward};
constexpr PassTable kTable{kPasses, {}};

TEST(ReshardAfterForward, ALaterPassThatLetsALayoutCrossIsCaught) {
  TempDir scratch;
  ManagerOptions options;
  options.reproducer_dir = scratch.path();
  for (std::string_view policy : {"always", "never"}) {
    Module module = *ParseModule(std::string(kStep), "step", Ops());
    Pipeline pipeline = *ParsePipeline(
        fmt::format("reshard-after-forward{{policy={}}}, read-forward", policy), kTable);
    Result<RunReport> report = RunPipeline(module, pipeline, options);
    ASSERT_FALSE(report.ok());
    EXPECT_NE(Format(report.diagnostics()).find("`%c` of unit `u`, and `%dx` reads it"),
              std::string::npos)
        << Format(report.diagnostics());
    EXPECT_EQ(report.diagnostics()[0].kind, Diag::kWeightCrosses);
  }
}

TEST(ReshardAfterForward, WithoutThePassThereIsNoPromise) {
  Module module = *ParseModule(std::string(kStep), "step", Ops());
  Pipeline pipeline = *ParsePipeline("", kTable);
  EXPECT_TRUE(RunPipeline(module, pipeline).ok());
}

// All nodes that a node depends on.
std::set<NodeId> Ancestors(const Graph& graph, NodeId node) {
  std::set<NodeId> ancestors;
  std::vector<NodeId> open{node};
  while (!open.empty()) {
    NodeId id = open.back();
    open.pop_back();
    for (ValueId v : graph.operands(id)) {
      NodeId producer = graph[v].producer;
      if (producer && ancestors.insert(producer).second) open.push_back(producer);
    }
  }
  return ancestors;
}

Module RandomLaunches(uint32_t seed, size_t nodes) {
  std::mt19937 random(seed);
  std::vector<std::string> values{"x"};
  std::string body;
  auto any = [&] { return "%" + values[random() % values.size()]; };
  for (size_t i = 0; i < nodes; ++i) {
    std::string name = fmt::format("v{}", i);
    if (random() % 2 == 0) {
      body += fmt::format("%{} = aten.mm({}, {}) : f32[8,8]\n", name, any(), any());
    } else {
      body += fmt::format("%{0}! = comm.all_reduce({1}, over=[dp], why=grad) : async f32[8,8]\n",
                          name, any());
      body += fmt::format("%{0} = comm.wait(%{0}!) : f32[8,8]\n", name);
    }
    values.push_back(name);
  }
  return *ParseModule(
      fmt::format("heddle 1 local\nmesh [dp=2]\ngraph @g(%x: f32[8,8]) -> ({}) {{\n{}}}\n", any(),
                  body),
      "random", Ops());
}

TEST(IndependentLaunches, FindsTheFirstThatALaunchDependsOn) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Module module = RandomLaunches(seed, 10 + seed);
    const Graph& graph = module.graphs[0];
    IndependentLaunches launches(graph);
    for (NodeId id : graph.nodes()) {
      if (graph[id].op != op::comm_all_reduce || (id.index() + seed) % 3 == 0) continue;
      std::set<NodeId> ancestors = Ancestors(graph, id);
      auto first = std::ranges::find_if(launches.list(),
                                        [&](NodeId other) { return ancestors.contains(other); });
      NodeId expected = first == launches.list().end() ? NodeId() : *first;
      ASSERT_EQ(launches.FindNeeded(id), expected) << "seed " << seed;
      if (!expected) launches.Add(id);
    }
  }
}

}  // namespace
}  // namespace heddle::compile
