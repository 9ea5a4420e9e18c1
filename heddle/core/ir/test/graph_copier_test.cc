// Splits a graph and joins it again.
#include "heddle/core/ir/edit/graph_copier.h"

#include "heddle/core/ir/structural_hash.h"
#include "heddle/core/ir/test/test_ops.h"

namespace heddle {
namespace {

bool IsRead(const Graph& graph, ValueId value, Phase phase) {
  for (NodeId id : graph.nodes()) {
    for (ValueId v : graph.operands(id)) {
      if (v == value && graph[id].phase == phase) return true;
    }
  }
  return false;
}

// @fwd has the forward nodes and their outputs; @bwd has the rest. Values that @bwd reads from @fwd
// are saved.
Module Split(const Module& joint) {
  const Graph& whole = joint.graphs[0];
  Module parts{joint.view, joint.mesh, {}};
  Graph fwd("fwd", whole.ops());
  Graph bwd("bwd", whole.ops());
  GraphCopier to_fwd(joint.mesh, whole, fwd);
  GraphCopier to_bwd(joint.mesh, whole, bwd);
  EXPECT_TRUE(to_fwd.CopyRegions().ok() && to_bwd.CopyRegions().ok());
  for (const Input& input : whole.inputs()) to_fwd.CopyInput(input);
  std::vector<Output> saved;
  for (ValueId v : whole.values()) {
    bool forward = !whole[v].producer || whole[whole[v].producer].phase == Phase::kForward;
    if (!forward || !IsRead(whole, v, Phase::kBackward)) continue;
    std::string label(whole.name(v));
    to_bwd.AddInput(v, {.role = InputRole::kSaved, .label = label});
    saved.push_back({.value = v, .role = OutputRole::kSaved, .label = label});
  }
  for (NodeId id : whole.nodes())
    (whole[id].phase == Phase::kForward ? to_fwd : to_bwd).CopyNode(id);
  for (const Output& output : whole.outputs())
    (to_fwd.of(output.value) ? to_fwd : to_bwd).CopyOutput(output);
  for (const Output& output : saved) to_fwd.CopyOutput(output);
  parts.graphs = {fwd, bwd};
  return parts;
}

Module Join(const Module& parts) {
  const Graph& fwd = parts.graphs[0];
  const Graph& bwd = parts.graphs[1];
  Module joint{parts.view, parts.mesh, {}};
  Graph whole("step", fwd.ops());
  GraphCopier from_fwd(parts.mesh, fwd, whole);
  GraphCopier from_bwd(parts.mesh, bwd, whole);
  EXPECT_TRUE(from_fwd.CopyRegions().ok() && from_bwd.CopyRegions().ok());
  for (const Input& input : fwd.inputs()) from_fwd.CopyInput(input);
  for (NodeId id : fwd.nodes()) from_fwd.CopyNode(id);
  for (const Output& output : fwd.outputs()) {
    if (output.role != OutputRole::kSaved) {
      from_fwd.CopyOutput(output);
      continue;
    }
    for (const Input& input : bwd.inputs()) {
      if (input.label == output.label) from_bwd.Bind(input.value, from_fwd.of(output.value));
    }
  }
  for (NodeId id : bwd.nodes()) from_bwd.CopyNode(id);
  for (const Output& output : bwd.outputs()) from_bwd.CopyOutput(output);
  joint.graphs.push_back(std::move(whole));
  return joint;
}

constexpr const char* kJoint = R"(heddle 1 global
mesh [dp=2, tp=3]
graph @step(%x: bf16[8{dp},t0<=4] batch "x", %w: f32[4] param 0 "w" unit "u", %m: f32[4] buffer "m")
    -> (metric "y" %y, update %m -> %m.new, grad 0 %dw) {
 region @layers.0 local=[dp] why=expert
 region @"a b"
 fwd:
  %a = aten.scale(%x, by=0.5, bias=%w, dim=1, size=[8,t0]) : bf16[8{dp},t0<=4] @layers.0 keep=must_save
  %b, %c = aten.pair(%a) : (bf16[8{dp},t0<=4], bf16[8{dp},t0<=4]) @"a b" keep=[default,offload]
  %y = aten.mystery(%b, [%c, none], note="n", axes=[dp,tp], names=["a","b"]) : bf16[8,t0<=4]{+dp}
  %m.new = aten.neg(%m) : f32[4]
 bwd:
  %d = aten.scale(%a, dim=0, size=[t0]) : bf16[8{dp},t0<=4] @layers.0
  %s! = comm.start(%w) : async f32[4] stream=2
  %s = comm.wait(%s!) : f32[4]
  %dw = aten.add(%s, %d) : f32[4]
}
)";

TEST(GraphCopier, SplitAndJoinGiveTheGraphBack) {
  Module joint = Read(kJoint);
  Module parts = Split(joint);
  ASSERT_TRUE(Verify(parts).ok()) << Print(parts) << Format(Verify(parts).diagnostics());
  EXPECT_EQ(Print(Read(Print(parts))), Print(parts));
  EXPECT_EQ(parts.graphs[0].node_count(), 4u);
  EXPECT_EQ(parts.graphs[1].inputs().size(), 2u);
  Module again = Join(parts);
  EXPECT_EQ(Print(again), Print(joint));
  EXPECT_EQ(StructuralHash(again), StructuralHash(joint));
  // The same through text.
  EXPECT_EQ(Print(Join(Read(Print(parts)))), Print(joint));
}

TEST(GraphCopier, NamesAndSymbolsOfTwoGraphsMayClash) {
  Module m = Read(
      "heddle 1 local\nmesh [dp=2]\ngraph @a(%x: f32[n<=8,5{dp}]) -> (%y) {\n  %y = "
      "aten.neg(%x)\n}\n"
      "graph @b(%x: f32[n<=9,5{dp}], %z: f32[n_1<=4]) -> (%y) {\n  %y = aten.scale(%x, "
      "dim=n)\n}\n");
  Graph both("both", m.graphs[0].ops());
  GraphCopier a(m.mesh, m.graphs[0], both);
  GraphCopier b(m.mesh, m.graphs[1], both);
  a.CopyInput(m.graphs[0].inputs()[0]);
  for (const Input& input : m.graphs[1].inputs()) b.CopyInput(input);
  a.CopyNode(NodeId(0));
  b.CopyNode(NodeId(0));
  a.CopyOutput(m.graphs[0].outputs()[0]);
  b.CopyOutput(m.graphs[1].outputs()[0]);
  Module out{m.view, m.mesh, {}};
  out.graphs.push_back(std::move(both));
  EXPECT_EQ(Print(out), Print(Read("heddle 1 local\nmesh [dp=2]\n"
                                   "graph @both(%x: f32[n<=8,5{dp}], %x_1: f32[n_2<=9,5{dp}], %z: "
                                   "f32[n_1<=4]) -> (%y, %y_1) {\n  %y = aten.neg(%x)\n"
                                   "  %y_1 = aten.scale(%x_1, dim=n_2)\n}\n")));
}

TEST(GraphCopier, RegionsThatDifferAreRefused) {
  Module m = Read(
      "heddle 1 global\nmesh [dp=2]\ngraph @a() -> () {\n region @s local=[dp]\n}\n"
      "graph @b() -> () {\n region @s\n region @r\n}\n");
  Graph both("both", m.graphs[0].ops());
  EXPECT_TRUE(GraphCopier(m.mesh, m.graphs[0], both).CopyRegions().ok());
  EXPECT_TRUE(GraphCopier(m.mesh, m.graphs[0], both).CopyRegions().ok());
  Status second = GraphCopier(m.mesh, m.graphs[1], both).CopyRegions();
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.diagnostics()[0].message,
            "scope `s` has a region in `@b` and another in `@both`");
}

TEST(GraphCopierDeathTest, OperandsComeFirst) {
  Module m = Read(kChain);
  Graph copy("copy", m.graphs[0].ops());
  GraphCopier copier(m.mesh, m.graphs[0], copy);
  EXPECT_DEATH(copier.CopyNode(NodeId(0)), "`%x` is read by a copy, but was not copied to `@copy`");
}

}  // namespace
}  // namespace heddle
