// Random graphs: text round trips, passes keep their promises, and nothing depends on chance.
#include <random>

#include <gtest/gtest.h>

#include "heddle/ir/diff.h"
#include "heddle/ir/parse.h"
#include "heddle/ir/print.h"
#include "heddle/ir/structural_hash.h"
#include "heddle/ir/verify.h"
#include "heddle/ops/ops.h"
#include "heddle/pass/manager.h"
#include "heddle/passes/passes.h"

namespace heddle {
namespace {

// A text of views, arithmetic and collectives over square matrices, so that any value fits anywhere.
std::string RandomText(uint32_t seed) {
  std::mt19937 random(seed);
  auto pick = [&](size_t n) { return static_cast<size_t>(random() % n); };
  std::vector<std::string> values{"x", "y"};
  std::string body;
  auto any = [&] { return "%" + values[pick(values.size())]; };
  size_t nodes = 5 + pick(60);
  for (size_t i = 0; i < nodes; ++i) {
    std::string name = fmt::format("v{}", i);
    std::string tail = pick(4) == 0 ? fmt::format(" @layers.{}", pick(3)) : "";
    if (pick(8) == 0) tail += " keep=must_save";
    if (pick(9) == 0) body += pick(2) == 0 ? " bwd:\n" : " fwd:\n";
    switch (pick(9)) {
      case 0: body += fmt::format("  %{} = aten.t({}) : f32[8,8]{}\n", name, any(), tail); break;
      case 1:
        body += fmt::format("  %{} = aten.view({}, size=[8,8]) : f32[8,8]{}\n", name, any(), tail);
        break;
      case 2:
        body += fmt::format("  %{} = aten.mm({}, {}) : f32[8,8]{}\n", name, any(), any(), tail);
        break;
      case 3:
        body +=
            fmt::format("  %{} = aten.add.Tensor({}, {}) : f32[8,8]{}\n", name, any(), any(), tail);
        break;
      case 4:
        body += fmt::format("  %{} = aten.alias({}) : f32[8,8]{}\n", name, any(), tail);
        break;
      case 5: body += fmt::format("  %{} = aten.exp({}) : f32[8,8]{}\n", name, any(), tail); break;
      case 6:
        body += fmt::format("  %{} = aten.rand_like({}) : f32[8,8]{}\n", name, any(), tail);
        break;
      case 7:
        body += fmt::format("  %{} = aten.transpose.int({}, dim0=-1, dim1=0) : f32[8,8]{}\n", name,
                            any(), tail);
        break;
      default:
        body += fmt::format(
            "  %{0}! = comm.all_reduce({1}, over=[dp], why=grad) : async f32[8,8]\n  %{0} = "
            "comm.wait(%{0}!) : f32[8,8]{2}\n",
            name, any(), tail);
    }
    values.push_back(name);
  }
  return fmt::format(
      "heddle 1 local\nmesh [dp=2]\ngraph @g(%x: f32[8,8], %y: f32[8,8]) -> ({}, {}) {{\n{}}}\n",
      any(), any(), body);
}

Module Read(const std::string& text) {
  Result<Module> module = ParseModule(text, "random", Ops());
  EXPECT_TRUE(module.ok()) << text << Format(module.diagnostics());
  return *module;
}

std::string RunText(Module module, std::string_view pipeline) {
  Result<RunReport> report = RunPipeline(module, *ParsePipeline(pipeline, Passes()));
  EXPECT_TRUE(report.ok()) << Format(report.diagnostics());
  return Print(module);
}

TEST(RandomGraphs, PrintAndParseAreInverse) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    Module module = Read(RandomText(seed));
    std::string printed = Print(module);
    Module again = Read(printed);
    EXPECT_EQ(Print(again), printed);
    EXPECT_EQ(StructuralHash(again), StructuralHash(module));
    EXPECT_TRUE(Diff(module, again).empty());
  }
}

TEST(RandomGraphs, EveryPassPassesTheManager) {
  for (uint32_t seed = 0; seed < 500; ++seed) {
    Module module = Read(RandomText(seed));
    for (const PassDef* pass : Passes().passes) {
      if (pass->any_view || pass->needs == module.view) RunText(module, pass->name);
    }
    std::string once = RunText(module, "clean");
    // A fixed point, and the same through text.
    EXPECT_EQ(RunText(Read(once), "clean"), once);
    EXPECT_EQ(RunText(Read(Print(module)), "clean"), once);
  }
}

TEST(RandomGraphs, TwentyRunsGiveOneText) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    std::string first = RunText(Read(RandomText(seed)), "clean");
    for (int run = 1; run < 20; ++run) EXPECT_EQ(RunText(Read(RandomText(seed)), "clean"), first);
  }
}

TEST(RandomGraphs, DiffOfAGraphAndItsCleanedSelfNamesRealNodes) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Module module = Read(RandomText(seed));
    Module cleaned = Read(RunText(module, "clean"));
    size_t vanished = 0;
    for (const Change& change : Diff(module, cleaned)) {
      vanished += change.kind == ChangeKind::kVanished && !change.before.starts_with("output");
    }
    EXPECT_EQ(module.graphs[0].node_count() - vanished, cleaned.graphs[0].node_count());
  }
}

}  // namespace
}  // namespace heddle
