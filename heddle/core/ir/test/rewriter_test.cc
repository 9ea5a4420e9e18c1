// Clones, replacements, and the order of nodes.
#include "heddle/core/ir/test/test_ops.h"

namespace heddle {
namespace {

TEST(Rewriter, ClonesFollowTheirOriginals) {
  Module m = ReadBody("(%w: f32[4]) -> (%y, %z)",
                      "  %a = aten.scale(%w, by=2.0, bias=%w, dim=1) @m.a keep=must_recompute\n"
                      "  %h = comm.start(%a, unit=\"u\") @m stream=3\n"
                      "  %g = comm.wait(%h) @m\n"
                      "  %y = aten.neg(%g)\n"
                      " bwd:\n"
                      "  %z = aten.add(%g, %w)\n");
  Graph& g = m.graphs[0];
  {
    Rewriter rewriter(g);
    NodeId z = NodeOf(g, "z");
    NodeId before;
    for (const char* name : {"a", "h", "g"}) {
      NodeId clone = rewriter.CloneBefore(z, NodeOf(g, name), Phase::kBackward);
      if (before) rewriter.SetOperand(clone, 0, g[before].first_result);
      before = clone;
    }
    rewriter.SetOperand(z, 0, g[before].first_result);
    // Before the copies, which are new.
    rewriter.CloneBefore(NodeOf(g, "a_1"), NodeOf(g, "y"));
    rewriter.Commit();
  }
  Module expected =
      ReadBody("(%w: f32[4]) -> (%y, %z)",
               "  %a = aten.scale(%w, by=2.0, bias=%w, dim=1) @m.a keep=must_recompute\n"
               "  %h = comm.start(%a, unit=\"u\") @m stream=3\n"
               "  %g = comm.wait(%h) @m\n"
               "  %y = aten.neg(%g)\n"
               "  %y_1 = aten.neg(%g)\n"
               " bwd:\n"
               "  %a_1 = aten.scale(%w, by=2.0, bias=%w, dim=1) @m.a keep=must_recompute\n"
               "  %h_1 = comm.start(%a_1, unit=\"u\") @m stream=3\n"
               "  %g_1 = comm.wait(%h_1) @m\n"
               "  %z = aten.add(%g_1, %w)\n");
  EXPECT_EQ(Print(m), Print(expected));
  EXPECT_TRUE(Verify(m).ok());
}

TEST(Rewriter, ClonesOfNodesWithManyResults) {
  Module m =
      ReadBody("(%x: f32[4]) -> (%b)", "  %a, %b = aten.pair(%x)\n  %c = aten.add(%a, %b)\n");
  Graph& g = m.graphs[0];
  Rewriter rewriter(g);
  for (int i = 0; i < 500; ++i) rewriter.CloneBefore(NodeId(1), NodeId(0));
  rewriter.Commit();
  EXPECT_TRUE(Verify(m).ok());
  EXPECT_EQ(g.node_count(), 502u);
  EXPECT_EQ(m, Read(Print(m)));
  EXPECT_TRUE(g.FindValue("b_500"));
}

TEST(Rewriter, ReplacementsKeepTheStrongerDecision) {
  Module m = ReadBody("(%x: f32[4]) -> (%a, %b, %c, %d)",
                      "  %a = aten.neg(%x) keep=prefer_recompute\n"
                      "  %b = aten.neg(%x) keep=must_save\n"
                      "  %c = aten.neg(%x) keep=must_recompute\n"
                      "  %d = aten.neg(%x) keep=offload\n");
  Graph& g = m.graphs[0];
  Rewriter rewriter(g);
  // Through a chain: the last value takes the decisions of all replaced ones.
  rewriter.ReplaceValue(g.FindValue("b"), g.FindValue("c"));
  rewriter.ReplaceValue(g.FindValue("c"), g.FindValue("a"));
  rewriter.ReplaceValue(g.FindValue("d"), g.FindValue("x"));
  for (const char* name : {"b", "c", "d"}) rewriter.Erase(NodeOf(g, name));
  rewriter.Commit();
  EXPECT_EQ(Print(m), Print(ReadBody("(%x: f32[4]) -> (%a, %a, %a, %x)",
                                     "  %a = aten.neg(%x) keep=must_save\n")));
}

}  // namespace
}  // namespace heddle
