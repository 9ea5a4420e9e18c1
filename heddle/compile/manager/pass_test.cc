// The manager must detect every way in which a pass can break a module or make a false claim.
#include <cstdlib>

#include <gtest/gtest.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/manager/reduce.h"
#include "heddle/core/base/file.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/cost/cost_model.h"

namespace heddle::compile {
namespace {

Result<Changed> Flip(Graph& graph, PassContext&) {
  Rewriter rewriter(graph);
  rewriter.SetPhase(NodeId(0),
                    graph[NodeId(0)].phase == Phase::kForward ? Phase::kBackward : Phase::kForward);
  return rewriter.Commit();
}
Result<Changed> SilentChange(Graph& graph, PassContext& context) {
  HEDDLE_RETURN_IF_ERROR(Flip(graph, context));
  return Changed::kNo;
}
Result<Changed> EmptyClaim(Graph&, PassContext&) { return Changed::kYes; }
Result<Changed> BreakTypes(Graph& graph, PassContext&) {
  Rewriter rewriter(graph);
  rewriter.SetType(graph[NodeId(0)].first_result, graph.types().Tensor(DType::kF64, Dims{99}));
  return rewriter.Commit();
}
Result<Changed> LoseOutput(Graph& graph, PassContext&) {
  Rewriter rewriter(graph);
  rewriter.EraseOutput(0);
  return rewriter.Commit();
}
// Fails on any graph with a sine, as a buggy pass might.
Result<Changed> HateSine(Graph& graph, PassContext&) {
  for (NodeId id : graph.nodes()) {
    HEDDLE_CHECK(graph[id].op != op::sin,
                 "a sine at " + std::string(graph.name(graph[id].first_result)));
    if (graph[id].op == op::cos) return Error(Diag::kPlacement, "a cosine");
  }
  return Changed::kNo;
}
// Moves the second node with this effect before the first.
Changed Swap(Graph& graph, Effect effect) {
  std::vector<NodeId> found;
  for (NodeId id : graph.nodes()) {
    if (graph.op(id).effect() == effect && graph[id].op != op::comm_wait) found.push_back(id);
  }
  std::vector<NodeId> order;
  for (NodeId id : graph.nodes()) {
    if (id == found[0]) order.push_back(found[1]);
    if (id != found[1]) order.push_back(id);
  }
  Rewriter rewriter(graph);
  rewriter.Reorder(order);
  return rewriter.Commit();
}
Result<Changed> SwapDraws(Graph& graph, PassContext&) { return Swap(graph, Effect::kRandom); }
Result<Changed> SwapLaunches(Graph& graph, PassContext&) { return Swap(graph, Effect::kComm); }
Result<Changed> DropFirst(Graph& graph, PassContext&) {
  Rewriter rewriter(graph);
  rewriter.Erase(NodeId(0));
  return rewriter.Commit();
}
struct CountOptions {
  Bytes limit = MiB(64);
  int64_t rounds = 3;
  bool loud = false;
};
Result<Changed> CountNodes(Graph& graph, const CountOptions& options, PassContext& context) {
  context.Count("nodes", static_cast<int64_t>(graph.node_count()));
  context.AddRemark(graph, graph.inputs()[0].value, RemarkKind::kReplicated, "{} bytes, {} rounds",
                    options.limit.value, options.rounds);
  return Changed::kNo;
}

constexpr PassDef kFlip{.name = "flip", .summary = "", .run = Run<Flip>};
constexpr PassDef kSilent{.name = "silent", .summary = "", .run = Run<SilentChange>};
constexpr PassDef kEmpty{.name = "empty", .summary = "", .run = Run<EmptyClaim>};
constexpr PassDef kBreak{.name = "break", .summary = "", .run = Run<BreakTypes>};
constexpr PassDef kLose{.name = "lose", .summary = "", .run = Run<LoseOutput>};
constexpr PassDef kHate{.name = "hate", .summary = "", .run = Run<HateSine>};
constexpr PassDef kDrop{.name = "drop", .summary = "", .run = Run<DropFirst>};
constexpr PassDef kSwapDraws{.name = "swap-draws", .summary = "", .run = Run<SwapDraws>};
constexpr PassDef kSwapLaunches{.name = "swap-launches", .summary = "", .run = Run<SwapLaunches>};
constexpr PassDef kSchedule{
    .name = "schedule", .summary = "", .run = Run<SwapLaunches>, .reorders_launches = true};
constexpr PassDef kRound{
    .name = "round", .summary = "", .run = Run<Flip>, .numerics = Numerics::kRounding};
Result<Changed> AskPrices(Graph&, PassContext& context) {
  return context.costs().cluster().name == "a100-8x" ? Changed::kNo : Changed::kYes;
}
constexpr PassDef kPrice{.name = "price", .summary = "", .run = Run<AskPrices>, .prices = true};
constexpr PassDef kGlobal{.name = "global",
                          .summary = "",
                          .run = Run<EmptyClaim>,
                          .any_view = false,
                          .needs = View::kGlobal};
constexpr OptionDef kCountOptions[] = {Option<&CountOptions::limit>("limit", ""),
                                       Option<&CountOptions::rounds>("rounds", ""),
                                       Option<&CountOptions::loud>("loud", "")};
constexpr std::string_view kCountStats[] = {"nodes", "never"};
constexpr PassDef kCount{.name = "count",
                         .summary = "",
                         .run = Run<CountNodes>,
                         .make_options = Make<CountOptions>,
                         .options = kCountOptions,
                         .stats = kCountStats};
constexpr const PassDef* kPasses[] = {&kFlip,      &kSilent,       &kEmpty,    &kBreak, &kLose,
                                      &kHate,      &kGlobal,       &kCount,    &kDrop,  &kRound,
                                      &kSwapDraws, &kSwapLaunches, &kSchedule, &kPrice};
constexpr PassTable::Named kNamed[] = {{"twice", "count, count{rounds=7}"},
                                       {"endless", "endless"},
                                       {"sly", "repeat{count, round}"},
                                       {"frank", "count, rounding{round}"}};
constexpr PassTable kTable{kPasses, kNamed};

class ManagerTest : public testing::Test {
 protected:
  ManagerTest() {
    dir_ = scratch_.path();
    options_.reproducer_dir = dir_;
    module_ = Read(
        "heddle 1 local\ngraph @g(%x: f32[4] batch) -> (loss %b) {\n  %a = aten.exp(%x) : f32[4]\n "
        " %b = aten.sum(%a) : f32[]\n}\n");
  }

  static Module Read(const std::string& text) {
    Result<Module> module = ParseModule(text, "test", Ops());
    EXPECT_TRUE(module.ok()) << Format(module.diagnostics());
    return *module;
  }
  Result<RunReport> RunText(std::string_view text) {
    return RunPipeline(module_, *ParsePipeline(text, kTable), options_);
  }
  Diag Failure(std::string_view text) {
    Result<RunReport> report = RunText(text);
    EXPECT_FALSE(report.ok());
    return report.diagnostics()[0].kind;
  }

  TempDir scratch_;
  std::string dir_;
  ManagerOptions options_;
  Module module_;
};

TEST_F(ManagerTest, CatchesASilentChange) { EXPECT_EQ(Failure("silent"), Diag::kPassClaim); }
TEST_F(ManagerTest, CatchesAnEmptyClaim) { EXPECT_EQ(Failure("empty"), Diag::kPassClaim); }
TEST_F(ManagerTest, CatchesALostRole) { EXPECT_EQ(Failure("lose"), Diag::kLostRole); }
TEST_F(ManagerTest, ChecksTheView) { EXPECT_EQ(Failure("global"), Diag::kPassView); }
TEST_F(ManagerTest, GivesPassesTheCostsOfTheCluster) {
  EXPECT_EQ(Failure("price"), Diag::kPassOption);
  price::CostModel costs = *price::CostModel::Make(*price::LoadCluster("a100-8x"), {});
  options_.costs = &costs;
  EXPECT_TRUE(RunText("price").ok());
}
TEST_F(ManagerTest, StopsARepeatThatNeverSettles) {
  EXPECT_EQ(Failure("repeat{flip}"), Diag::kNoFixpoint);
}

TEST_F(ManagerTest, RandomAndUnknownOpsKeepTheirSequence) {
  const std::string text =
      "heddle 1 local\ngraph @g(%x: f32[4]) -> (%d) {\n  %a = aten.rand_like(%x)\n  %b = "
      "aten.rand_like(%x)\n  %c = aten.of_nobody(%x) : f32[4]\n  %d = aten.exp(%b)\n}\n";
  module_ = Read(text);
  Result<RunReport> swapped = RunText("swap-draws");
  ASSERT_FALSE(swapped.ok());
  EXPECT_EQ(swapped.diagnostics()[0].kind, Diag::kRandomOrder);
  EXPECT_EQ(swapped.diagnostics()[0].message,
            "after pass 1 (swap-draws): swap-draws changed the sequence of random and unknown ops: "
            "number 1 was %a = aten.rand_like, is %b = aten.rand_like; 3 before, 3 after");
  module_ = Read(text);
  EXPECT_EQ(Failure("drop"), Diag::kRandomOrder);
}

TEST_F(ManagerTest, LaunchesOfACommunicatorKeepTheirOrder) {
  auto read = [](int stream) {
    return Read(
        fmt::format("heddle 1 local\nmesh [dp=2,tp=2]\ngraph @g(%x: f32[4]) -> (%a, %b) {{\n"
                    "  %a! = comm.all_reduce(%x, over=[dp], why=grad) stream={}\n"
                    "  %b! = comm.all_reduce(%x, over=[dp], why=grad) stream=1\n"
                    "  %a = comm.wait(%a!)\n  %b = comm.wait(%b!)\n}}\n",
                    stream));
  };
  module_ = read(1);
  Result<RunReport> swapped = RunText("swap-launches");
  ASSERT_FALSE(swapped.ok());
  EXPECT_EQ(swapped.diagnostics()[0].kind, Diag::kLaunchOrder);
  EXPECT_EQ(swapped.diagnostics()[0].message,
            "after pass 1 (swap-launches): swap-launches launches %a! after %b! over [dp] on "
            "stream 1; before the pass it was launched first");
  module_ = read(1);
  EXPECT_TRUE(RunText("schedule").ok());
  module_ = read(2);
  EXPECT_TRUE(RunText("swap-launches").ok());
}

TEST_F(ManagerTest, WhatRoundsIsAskedForByName) {
  EXPECT_TRUE(RunText("round").ok());
  EXPECT_TRUE(RunText("repeat{count}, rounding{round}").ok());
  EXPECT_TRUE(RunText("frank").ok());
  // The manager rejects the pipeline before the first pass runs.
  std::string before = Print(module_);
  EXPECT_EQ(Failure("flip, sly"), Diag::kRounding);
  EXPECT_EQ(Print(module_), before);
  // `rounding{}` around the name of a pipeline does not apply to passes in its text.
  EXPECT_EQ(Failure("rounding{sly}"), Diag::kRounding);
  Result<Pipeline> own = ParsePipeline("round", kTable, Author::kProgram);
  Result<RunReport> report = RunPipeline(module_, *own, options_);
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.diagnostics()[0].kind, Diag::kRounding);
  options_.allow_rounding = true;
  EXPECT_TRUE(RunPipeline(module_, *own, options_).ok());
}

TEST_F(ManagerTest, WritesAReproducerThatFailsAgain) {
  Module before = module_;
  Result<RunReport> report = RunText("count, break");
  ASSERT_FALSE(report.ok());
  EXPECT_EQ(report.diagnostics()[0].kind, Diag::kResultType);
  EXPECT_EQ(report.diagnostics().back().kind, Diag::kReproducer);
  std::string path = dir_ + "/heddle-reproducer.0002.break.hd";
  Result<std::string> text = ReadFile(path);
  ASSERT_TRUE(text.ok());
  EXPECT_EQ(*text, "// heddle opt --pipeline='break' " + path + "\n" + Print(before));
  module_ = Read(*text);
  EXPECT_EQ(Failure("break"), Diag::kResultType);
}

TEST_F(ManagerTest, ACrashLeavesAReproducerToo) {
  module_ =
      Read("heddle 1 local\ngraph @g(%x: f32[4]) -> (%a) {\n  %a = aten.sin(%x) : f32[4]\n}\n");
  EXPECT_DEATH((void)RunText("hate"), "in pass hate; to repeat it: heddle opt --pipeline='hate'");
  EXPECT_TRUE(ReadFile(dir_ + "/heddle-reproducer.0001.hate.hd").ok());
}

TEST_F(ManagerTest, ReportsStatsRemarksAndOptions) {
  Result<RunReport> report = RunText("twice");
  ASSERT_TRUE(report.ok());
  ASSERT_EQ(report->passes.size(), 2u);
  EXPECT_EQ(report->passes[1].pass, "count{rounds=7}");
  EXPECT_EQ(report->passes[1].stats,
            (std::vector<std::pair<std::string, int64_t>>{{"nodes", 2}, {"never", 0}}));
  EXPECT_EQ(Format(report->passes[1].remarks[0]), "@g %x: 67108864 bytes, 7 rounds [replicated]");
}

TEST_F(ManagerTest, DumpsAreNumbered) {
  options_.dump_dir = dir_ + "/dumps";
  ASSERT_TRUE(RunText("count, flip").ok());
  EXPECT_TRUE(ReadFile(dir_ + "/dumps/g.0001.count.same.hd").ok());
  EXPECT_EQ(*ReadFile(dir_ + "/dumps/g.0002.flip.changed.hd"), Print(module_));
}

TEST(Pipeline, TextRoundTrips) {
  for (const char* text :
       {"", "flip", "flip, count{limit=1KiB,rounds=-2,loud=true}", "repeat{flip, repeat{count}}"}) {
    EXPECT_EQ(Format(*ParsePipeline(text, kTable)), text);
  }
  EXPECT_EQ(Format(*ParsePipeline(" count{ limit = 64MiB } ,twice ", kTable)),
            "count, count, count{rounds=7}");
  EXPECT_EQ(Format(*ParsePipeline("rounding{flip, repeat{round}}, frank", kTable)),
            "flip, repeat{round}, count, round");
  for (const char* bad :
       {"count{limit=x}", "count{rounds=1.5}", "count{loud=maybe}", "count{limit}", "endless",
        "flip flip", "{", "flip}", "rounding", "rounding{flip"}) {
    EXPECT_FALSE(ParsePipeline(bad, kTable).ok()) << bad;
  }
}

class ReduceTest : public ManagerTest {
 protected:
  Result<Module> Reduce(std::string_view pipeline, std::string error) {
    ReduceModuleOptions options;
    options.error = std::move(error);
    return ReduceModule(module_, *ParsePipeline(pipeline, kTable), options);
  }
  void ReadLarge(const char* culprit) {
    std::string text =
        "heddle 1 local\nmesh [dp=2]\ngraph @g(%x: f32[4], %y: f32[4]) -> (%v49, %v10) {\n  %v0 = "
        "aten.add.Tensor(%x, %y) : f32[4]\n";
    for (int i = 1; i < 50; ++i) {
      text += fmt::format("  %v{} = aten.{}(%v{}) : f32[4]\n", i, i == 23 ? culprit : "exp", i - 1);
    }
    module_ = Read(text + "}\n");
  }
};

TEST_F(ReduceTest, FindsTheOneNodeThatMatters) {
  ReadLarge("cos");
  Result<Module> reduced = Reduce("count, hate", "a cosine");
  ASSERT_TRUE(reduced.ok()) << Format(reduced.diagnostics());
  EXPECT_EQ(reduced->graphs[0].node_count(), 1u);
  EXPECT_EQ(reduced->graphs[0].inputs().size(), 1u);
  EXPECT_EQ(reduced->graphs[0].outputs().size(), 1u);
}

TEST_F(ReduceTest, SurvivesCrashes) {
  ReadLarge("sin");
  Result<Module> reduced = Reduce("hate", "a sine at");
  ASSERT_TRUE(reduced.ok()) << Format(reduced.diagnostics());
  EXPECT_EQ(reduced->graphs[0].node_count(), 1u);
}

// `hate` adds a remark for a cosine, and crashes on a sine.
TEST_F(ReduceTest, LooksForACrashAlone) {
  ReduceModuleOptions options;
  options.crash = true;
  ReadLarge("sin");
  Result<Module> reduced = ReduceModule(module_, *ParsePipeline("hate", kTable), options);
  ASSERT_TRUE(reduced.ok()) << Format(reduced.diagnostics());
  EXPECT_EQ(reduced->graphs[0].node_count(), 1u);
  options.error = "another text";
  EXPECT_FALSE(ReduceModule(module_, *ParsePipeline("hate", kTable), options).ok());
  options.error = "";
  ReadLarge("cos");
  reduced = ReduceModule(module_, *ParsePipeline("hate", kTable), options);
  ASSERT_FALSE(reduced.ok());
  EXPECT_EQ(reduced.diagnostics()[0].kind, Diag::kReduce);
}

TEST_F(ReduceTest, SaysWhenNothingFails) {
  ReadLarge("neg");
  Result<Module> reduced = Reduce("hate", "a sine");
  ASSERT_FALSE(reduced.ok());
  EXPECT_EQ(reduced.diagnostics()[0].kind, Diag::kReduce);
}

}  // namespace
}  // namespace heddle::compile
