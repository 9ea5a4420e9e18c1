// What the passes of FSDP promise, and that a pass which breaks a promise is caught.
#include <gtest/gtest.h>

#include "heddle/compile/manager/manager.h"
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

// Gives backward back what forward made: the copy that has no mark.
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
    EXPECT_NE(Format(report.diagnostics()).find("`%c` of unit `u` is read by `%dx`"),
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

}  // namespace
}  // namespace heddle::compile
