// Every mutant is caught: by the verifier, by a pass's promise, or because it trains to other bits
// than eager.
#include <gtest/gtest.h>

#include "heddle/compile/manager/pass.h"
#include "heddle/core/ir/check/check_module.h"
#include "test/fsdp/job.h"
#include "test/fsdp/mutants.h"

namespace heddle::compile {
extern const PassDef kPassDef_reshard_after_forward;
}  // namespace heddle::compile

namespace heddle {

namespace {

// HSDP of odd sizes in f32, where every rounding shows. Buckets have padding, and the reducer cuts
// them at arbitrary positions.
const FsdpJob& SmallJob() {
  static const FsdpJob job({"llama3", "debugmodel", DType::kF32, 2, 4, 1, true});
  return job;
}

// Returns how a wrong graph is caught; empty if it is not.
std::string CaughtBy(const Module& module) {
  Status verified = Verify(module);
  if (!verified.ok()) return "the verifier: " + Format(verified.diagnostics());
  Status promised = compile::kPassDef_reshard_after_forward.ensures(module);
  if (!promised.ok()) return "a promise: " + Format(promised.diagnostics());
  std::string trained = Describe(SmallJob().AgainstEager(module, *run::Reducer::Parse("gloo"), 2));
  return trained == "equal" ? "" : "training: " + trained;
}

class Mutants : public testing::TestWithParam<Mutant> {};

TEST_P(Mutants, AreCaught) {
  Module module = SmallJob().Compiled("fsdp");
  Rewriter rewriter(module.graphs[0]);
  GetParam().apply(module.graphs[0], rewriter);
  ASSERT_EQ(rewriter.Commit(), Changed::kYes);
  std::string caught = CaughtBy(module);
  EXPECT_NE(caught, "");
  RecordProperty("caught_by", caught);
}

INSTANTIATE_TEST_SUITE_P(All, Mutants, testing::ValuesIn(AllMutants()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(MutantSet, AreAtLeastThirty) { EXPECT_GE(AllMutants().size(), 30); }

TEST(MutantSet, TheGraphItselfIsNotCaught) { EXPECT_EQ(CaughtBy(SmallJob().Compiled("fsdp")), ""); }

}  // namespace
}  // namespace heddle
