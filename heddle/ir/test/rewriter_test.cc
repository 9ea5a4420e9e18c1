// Clones, replacements, and moves that keep dependence.
#include <algorithm>
#include <random>

#include "heddle/ir/random_order.h"
#include "heddle/ir/test/test_ops.h"

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
  EXPECT_EQ(rewriter.TryMoveAfter({{NodeOf(g, "b"), NodeOf(g, "c")}}, NodeOf(g, "a")),
            std::nullopt);
  EXPECT_EQ(rewriter.Commit(), Changed::kNo);
}

class TryMove : public testing::Test {
 protected:
  // Moves the nodes called `names` next to `anchor`: the new order, or "who past whom".
  std::string Move(const std::string& body, const std::vector<std::string>& names,
                   const std::string& anchor, bool before) {
    Module m = ReadBody("(%x: f32[4], %w: f32[4]) -> ()", body);
    Graph& g = m.graphs[0];
    Rewriter rewriter(g);
    std::vector<NodeId> nodes;
    for (const std::string& name : names) nodes.push_back(NodeOf(g, name));
    auto blocked = before ? rewriter.TryMoveBefore(nodes, NodeOf(g, anchor))
                          : rewriter.TryMoveAfter(nodes, NodeOf(g, anchor));
    if (blocked) {
      auto name = [&](NodeId id) { return std::string(g.name(g[id].first_result)); };
      std::string text = name(blocked->moved) + " past " + name(blocked->passed);
      EXPECT_EQ(rewriter.Commit(), Changed::kNo);
      return text;
    }
    rewriter.Commit();
    EXPECT_TRUE(Verify(m).ok());
    return Order(g);
  }
};

TEST_F(TryMove, WhatDependsStays) {
  std::string body =
      "  %a = aten.neg(%x)\n  %b = aten.neg(%a)\n  %c = aten.neg(%x)\n  %d = aten.add(%b, %c)\n"
      "  %e = aten.neg(%d)\n";
  EXPECT_EQ(Move(body, {"c"}, "a", true), "c a b d e ");
  EXPECT_EQ(Move(body, {"a", "b"}, "c", false), "c a b d e ");
  EXPECT_EQ(Move(body, {"a"}, "c", false), "a past b");
  EXPECT_EQ(Move(body, {"b", "a"}, "d", false), "b past d");
  EXPECT_EQ(Move(body, {"d"}, "c", true), "d past c");
  EXPECT_EQ(Move(body, {"d", "e"}, "b", true), "d past c");
  // From both sides.
  EXPECT_EQ(Move(body, {"a", "d"}, "c", true), "a past b");
  EXPECT_EQ(Move(body, {"b", "e"}, "d", true), "e past d");
  EXPECT_EQ(Move(body, {"b", "d"}, "c", false), "a c b d e ");
}

TEST_F(TryMove, WhatAnUpdateTakesOverIsReadBefore) {
  std::string body =
      "  %v = aten.alias(%w)\n  %r = aten.neg(%v)\n  %n, %m = aten.step([%w], [%x])\n"
      "  %q = aten.neg(%n)\n";
  EXPECT_EQ(Move(body, {"r"}, "n", false), "r past n");
  EXPECT_EQ(Move(body, {"v", "r"}, "q", false), "v past n");
  EXPECT_EQ(Move(body, {"n"}, "r", true), "n past r");
  EXPECT_EQ(Move(body, {"n"}, "v", true), "n past r");
  EXPECT_EQ(Move(body, {"r"}, "v", true), "r past v");
}

TEST_F(TryMove, ACollectiveReadsUntilItsWait) {
  std::string body =
      "  %h = comm.start(%w)\n  %g = comm.wait(%h)\n  %n, %m = aten.step([%w], [%x])\n";
  EXPECT_EQ(Move(body, {"n"}, "g", true), "n past g");
  EXPECT_EQ(Move(body, {"g"}, "n", false), "g past n");
}

TEST_F(TryMove, DrawsKeepTheirOrder) {
  std::string body = "  %a = aten.rand(%x)\n  %b = aten.neg(%x)\n  %c = aten.rand(%x)\n";
  EXPECT_EQ(Move(body, {"a"}, "b", false), "b a c ");
  EXPECT_EQ(Move(body, {"a"}, "c", false), "a past c");
  EXPECT_EQ(Move(body, {"c"}, "a", true), "c past a");
  EXPECT_EQ(Move(body, {"a", "c"}, "b", false), "b a c ");
}

// Nodes over one value and one state, whose results are all outputs.
std::string RandomBody(std::mt19937& random, std::string& outputs) {
  auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::vector<std::string> values{"x"};
  std::vector<std::string> flying;
  std::vector<std::string> states{"w"};
  std::string body;
  auto any = [&] { return "%" + values[pick(values.size())]; };
  for (size_t i = 0; i < 12; ++i) {
    std::string name = "v" + std::to_string(i);
    switch (pick(7)) {
      case 0: body += "  %" + name + " = aten.neg(" + any() + ")\n"; break;
      case 1: body += "  %" + name + " = aten.add(" + any() + ", " + any() + ")\n"; break;
      case 2: body += "  %" + name + " = aten.rand(" + any() + ")\n"; break;
      case 3: body += "  %" + name + " = aten.alias(%" + states.back() + ")\n"; break;
      case 4: body += "  %" + name + " = aten.neg(%" + states.back() + ")\n"; break;
      case 5:
        if (flying.empty()) {
          body += "  %" + name + "! = comm.start(%" + states.back() + ")\n";
          flying.push_back(name);
          continue;
        }
        name = flying.back();
        flying.pop_back();
        body += "  %" + name + " = comm.wait(%" + name + "!)\n";
        break;
      default:
        if (!flying.empty()) continue;
        // Views and copies of the old state are not read any more.
        values = {"x"};
        body += "  %" + name + " = aten.step([%" + states.back() + "], [])\n";
        states.push_back(name);
        continue;
    }
    values.push_back(name);
  }
  for (const std::string& name : flying) body += "  %" + name + " = comm.wait(%" + name + "!)\n";
  outputs = "%" + states.back();
  return body;
}

// A move is made if, and only if, the graph is as good afterwards.
TEST(Rewriter, MovesWhatMayMove) {
  size_t moved = 0;
  size_t refused = 0;
  for (uint32_t seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    std::string outputs;
    std::string body = RandomBody(random, outputs);
    Module m = ReadBody("(%x: f32[4], %w: f32[4]) -> (" + outputs + ")", body);
    Graph& g = m.graphs[0];
    if (g.node_count() < 3) continue;
    NodeId anchor(random() % g.node_count());
    std::vector<NodeId> set;
    for (NodeId id : g.nodes()) {
      if (id != anchor && random() % 4 == 0) set.push_back(id);
    }
    bool before = random() % 2 == 0;
    // The order that the move would give.
    std::vector<NodeId> order;
    for (NodeId id : g.nodes()) {
      if (id == anchor && before) order.insert(order.end(), set.begin(), set.end());
      if (std::ranges::find(set, id) == set.end()) order.push_back(id);
      if (id == anchor && !before) order.insert(order.end(), set.begin(), set.end());
    }
    Module plain = m;
    Rewriter forced(plain.graphs[0]);
    forced.Reorder(order);
    forced.Commit();
    bool good = Verify(plain).ok() && RandomOrder(plain) == RandomOrder(m);

    Rewriter rewriter(g);
    auto blocked =
        before ? rewriter.TryMoveBefore(set, anchor) : rewriter.TryMoveAfter(set, anchor);
    rewriter.Commit();
    EXPECT_EQ(!blocked, good) << body << Print(plain);
    if (!blocked) {
      EXPECT_EQ(Print(m), Print(plain));
    }
    ++(blocked ? refused : moved);
  }
  EXPECT_GT(moved, 300u);
  EXPECT_GT(refused, 300u);
}

}  // namespace
}  // namespace heddle
