// Verification finds faults of a graph: the difference, and the node and pass that caused it.
#include <gtest/gtest.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/train/exact.h"
#include "heddle/run/verify/verify.h"
#include "test/parallel/training.h"

namespace heddle {
namespace {

// A wrong pass that replaces the gate of the last layer by another function.
Result<Changed> WrongGate(Graph& graph, compile::PassContext&) {
  Rewriter rewriter(graph);
  NodeId last;
  for (NodeId node : graph.nodes()) {
    if (graph[node].op == op::silu) last = node;
  }
  rewriter.SetOp(last, op::relu, AttrsTable::kEmpty);
  return rewriter.Commit();
}
Result<Changed> Nothing(Graph&, compile::PassContext&) { return Changed::kNo; }
const compile::PassDef kWrongGate{
    .name = "wrong-gate", .summary = "", .run = compile::Run<WrongGate>};
const compile::PassDef kNothing{.name = "nothing", .summary = "", .run = compile::Run<Nothing>};

compile::PipelineItem Item(const compile::PassDef& pass) {
  compile::PipelineItem item;
  item.pass = &pass;
  return item;
}

class VerifyTest : public testing::Test {
 protected:
  VerifyTest() : job_({"llama3", "debugmodel", DType::kF32}, {"fsdp2_tp2", 1, 2, 2}) {
    run::MakeExact();
    options_.steps = 3;
    options_.lr = [](int64_t) { return 1e-3; };
    options_.params = job_.model().params.size();
    options_.graph = [this] { return MakeRun(broken_); };
  }

  Result<std::unique_ptr<run::GraphRun>> MakeRun(const Module& module) {
    HEDDLE_TRY(std::unique_ptr<run::Session> session, job_.MakeSession(module));
    return std::unique_ptr<run::GraphRun>(std::move(session));
  }
  void Break() { ASSERT_TRUE(compile::RunPipeline(broken_, wrong_).ok()); }

  SmallJob job_;
  Module broken_ = job_.local();
  compile::Pipeline wrong_ = {Item(kNothing), Item(kWrongGate), Item(kNothing)};
  run::VerifyOptions options_;
};

TEST_F(VerifyTest, FindsTheNodeThatEagerNeverHad) {
  Break();
  options_.eager = [this] { return job_.MakeEager(); };
  run::VerifyReport report = *run::Verify(options_);
  ASSERT_TRUE(report.differs());
  EXPECT_EQ(report.rows.size(), 1u);
  EXPECT_GT(report.rows[0].comparison.differing_bits, 0);
  // The loss is compared first.
  EXPECT_FALSE(report.rows[0].comparison.first->kind.has_value());
  ASSERT_TRUE(report.origin.has_value());
  EXPECT_NE(report.origin->node.find("aten.relu("), std::string::npos) << report.origin->node;
  EXPECT_NE(report.origin->node.find("@layers.1.feed_forward"), std::string::npos);
}

TEST_F(VerifyTest, FindsTheNodeThatAnotherGraphHasDifferently) {
  Break();
  options_.other_graph = [this] { return MakeRun(job_.local()); };
  run::VerifyReport report = *run::Verify(options_);
  ASSERT_TRUE(report.differs());
  ASSERT_TRUE(report.origin.has_value());
  EXPECT_NE(report.origin->node.find("aten.relu("), std::string::npos) << report.origin->node;
}

TEST_F(VerifyTest, FindsThePassThatChangesBits) {
  auto make = [this](const Module& module) { return MakeRun(module); };
  std::optional<std::string> pass =
      *run::FirstDifferingPass(job_.local(), wrong_, {}, options_, /*steps=*/1, make);
  EXPECT_EQ(pass.value_or(""), "wrong-gate (pass 2 of 3)");
  EXPECT_FALSE(
      run::FirstDifferingPass(job_.local(), {Item(kNothing)}, {}, options_, 1, make)->has_value());
}

TEST_F(VerifyTest, FindsTheNodeThatMadeTheFirstNan) {
  options_.lr = [](int64_t) { return 1e30; };
  run::VerifyReport report = *run::Verify(options_);
  EXPECT_FALSE(report.finite);
  EXPECT_FALSE(report.differs());
  ASSERT_TRUE(report.origin.has_value());
  EXPECT_EQ(report.origin->what, "the first NaN");
  // Parameters are huge after the first step.
  EXPECT_EQ(report.origin->step, 2);
  EXPECT_LE(report.rows.size(), 3u);
}

}  // namespace
}  // namespace heddle
