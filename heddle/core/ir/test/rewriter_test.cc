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
    // The order in which they are given does not matter.
    std::vector<NodeId> chain{NodeOf(g, "g"), NodeOf(g, "a"), NodeOf(g, "h")};
    std::vector<NodeId> clones = rewriter.CloneBefore(NodeOf(g, "z"), chain, Phase::kBackward);
    ASSERT_EQ(clones.size(), 3u);
    rewriter.SetOperand(NodeOf(g, "z"), 0, g[clones[0]].first_result);
    EXPECT_TRUE(rewriter.Before(clones[1], clones[2]));
    EXPECT_TRUE(rewriter.Before(clones[2], clones[0]));
    EXPECT_TRUE(rewriter.Before(clones[0], NodeOf(g, "z")));
    NodeId again = rewriter.CloneAfter(NodeOf(g, "y"), {{NodeOf(g, "y")}})[0];
    EXPECT_TRUE(rewriter.Before(NodeOf(g, "y"), again));
    EXPECT_TRUE(rewriter.Before(again, clones[1]));
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
  for (int i = 0; i < 500; ++i) rewriter.CloneAfter(NodeId(0), {{NodeId(0), NodeId(1)}});
  rewriter.Commit();
  EXPECT_TRUE(Verify(m).ok());
  EXPECT_EQ(g.node_count(), 1002u);
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
  // Through a chain: what stays has all that came before.
  rewriter.ReplaceValue(g.FindValue("b"), g.FindValue("c"));
  rewriter.ReplaceValue(g.FindValue("c"), g.FindValue("a"));
  rewriter.ReplaceValue(g.FindValue("d"), g.FindValue("x"));
  for (const char* name : {"b", "c", "d"}) rewriter.Erase(NodeOf(g, name));
  rewriter.Commit();
  EXPECT_EQ(Print(m), Print(ReadBody("(%x: f32[4]) -> (%a, %a, %a, %x)",
                                     "  %a = aten.neg(%x) keep=must_save\n")));
}

TEST(Rewriter, BeforeFollowsEveryEdit) {
  Module m = Read(kChain);
  Graph& g = m.graphs[0];
  Rewriter rewriter(g);
  NodeId a = NodeOf(g, "a");
  NodeId c = NodeOf(g, "c");
  NodeId fresh = rewriter.CloneBefore(a, {{c}})[0];
  EXPECT_TRUE(rewriter.Before(fresh, a));
  rewriter.MoveAfter(fresh, c);
  EXPECT_TRUE(rewriter.Before(c, fresh));
  rewriter.MoveBefore(fresh, c);
  EXPECT_TRUE(rewriter.Before(fresh, c));
  EXPECT_FALSE(rewriter.Before(fresh, a));
  rewriter.Abandon();
}

TEST(Rewriter, AMoveThatMovesNothingIsNoEdit) {
  Module m = Read(kChain);
  Graph& g = m.graphs[0];
  Rewriter rewriter(g);
  rewriter.MoveBefore(NodeOf(g, "a"), NodeOf(g, "b"));
  rewriter.MoveAfter(NodeOf(g, "b"), NodeOf(g, "a"));
  EXPECT_EQ(rewriter.Commit(), Changed::kNo);
}

}  // namespace
}  // namespace heddle
