// Errors that only a program can cause, because the text cannot express them.
#include "heddle/core/ir/random_order.h"
#include "heddle/core/ir/test/test_ops.h"

namespace heddle {
namespace {

// The kinds of all errors of a module: "lost-role stream ".
std::string Kinds(const Module& module) {
  std::string kinds;
  for (const Finding& finding : FindErrors(module))
    kinds += std::string(Name(finding.diagnostic.kind)) + " ";
  return kinds;
}

TEST(Verify, PlacementsFitTheMesh) {
  Module m = Read(kChain);
  m.view = View::kGlobal;
  m.mesh = Mesh({{"dp", 2}, {"tp", 2}});
  auto kinds_with = [&](Placement placement) {
    Module placed = m;
    Graph& g = placed.graphs[0];
    Rewriter rewriter(g);
    rewriter.SetType(ValueId(1), g.type(ValueId(1)), g.placements().Intern(std::move(placement)));
    rewriter.Commit();
    return Kinds(placed);
  };
  EXPECT_EQ(kinds_with({.splits = {Axes(0)}, .partials = {{1, ReduceOp::kSum}}}), "");
  EXPECT_EQ(kinds_with({.splits = {Axes(0)}, .partials = {{0, ReduceOp::kSum}}}), "placement ");
  EXPECT_EQ(kinds_with({.splits = {Axes(0), Axes(0)}, .partials = {}}), "placement ");
  EXPECT_EQ(kinds_with({.splits = {Axes(2)}, .partials = {}}), "placement ");
  EXPECT_EQ(kinds_with({.splits = {}, .partials = {{0, ReduceOp::kSum}, {0, ReduceOp::kMax}}}),
            "placement ");
  // The same for the global type of a local value.
  Module local = Read(kChain);
  local.mesh = m.mesh;
  Graph& g = local.graphs[0];
  g.mutable_inputs()[0].global = {
      g.type(ValueId(0)), g.placements().Intern({.splits = {Axes(0)}, .partials = {{0, {}}}})};
  EXPECT_EQ(Kinds(local), "placement ");
}

TEST(Verify, RolesAreWhole) {
  Module m = Read(
      "heddle 1 local\ngraph @g(%w: f32[4] param 0, %m: f32[4] buffer) -> (grad 0 %w, update %m -> "
      "%w) {\n}\n");
  Module lost = m;
  lost.graphs[0].mutable_outputs()[1].target = ValueId();
  EXPECT_EQ(Kinds(lost), "lost-role ");
  lost = m;
  lost.graphs[0].mutable_outputs()[0].index = -1;
  EXPECT_EQ(Kinds(lost), "lost-role ");
  lost = m;
  lost.graphs[0].mutable_inputs()[0].index = -1;
  EXPECT_EQ(Kinds(lost), "lost-role lost-role ");
}

TEST(Verify, RegionsAreOnTheMesh) {
  Module m = Read("heddle 1 global\nmesh [dp=2]\ngraph @g() -> () {\n region @a local=[dp]\n}\n");
  std::vector<Region> regions = m.graphs[0].regions();
  regions[0].local = Axes(3);
  m.graphs[0].SetRegions(regions);
  EXPECT_EQ(Kinds(m), "placement ");
}

TEST(Verify, ManyMistakesAreCounted) {
  std::string text = "heddle 1 local\ngraph @g(%x: f32[4]) -> () {\n";
  for (int i = 0; i < 1000; ++i) text += "  %a" + std::to_string(i) + " = aten.neg(%x) : f32[5]\n";
  Result<Module> m = ParseModule(text + "}\n", "test", TestOps());
  ASSERT_EQ(m.diagnostics().size(), 257u);
  EXPECT_EQ(m.diagnostics()[0].kind, Diag::kResultType);
  EXPECT_EQ(m.diagnostics().back().kind, Diag::kManyMistakes);
  EXPECT_EQ(m.diagnostics().back().message, "744 more mistakes are not shown");
}

TEST(RandomOrder, IsThatOfTheNodesOfAllGraphs) {
  Module m = Read(
      "heddle 1 local\ngraph @f(%x: f32[4]) -> (%b) {\n  %a = aten.rand(%x)\n  %b = aten.neg(%a)\n"
      "  %c = aten.rand(%a)\n}\ngraph @g(%x: f32[4]) -> () {\n  %d = aten.rand(%x)\n}\n");
  using Strings = std::vector<std::string>;
  EXPECT_EQ(RandomOrder(m), (Strings{"%a = aten.rand", "%c = aten.rand", "%d = aten.rand"}));
}

}  // namespace
}  // namespace heddle
