// Compares training steps as graphs on ranks with eager training: every bit of the loss and of the
// ranks' state.
#include <gtest/gtest.h>

#include "heddle/core/base/test/extent.h"
#include "heddle/run/train/exact.h"
#include "heddle/run/verify/compare.h"
#include "test/parallel/training.h"

namespace heddle {
namespace {

class EagerTest : public testing::TestWithParam<std::tuple<Debug, Layout>> {
 protected:
  EagerTest() { run::MakeExact(); }
};

void ExpectTheSameBits(const SmallJob& job, const Module& local, const run::Reducer& reducer,
                       int64_t steps = 3) {
  std::unique_ptr<run::Session> session = *job.MakeSession(local, reducer);
  std::unique_ptr<run::TrainingRun> eager = *job.MakeEager(reducer);
  size_t params = job.model().params.size();
  for (int64_t step = 1; step <= steps; ++step) {
    double lr = 1e-3 / static_cast<double>(step);
    Status trained = session->Step(lr);
    ASSERT_TRUE(trained.ok()) << Format(trained.diagnostics());
    ASSERT_TRUE(eager->Step(lr).ok());
    run::Comparison comparison = run::Compare(*session, *eager, params);
    // The loss, and four tensors per parameter.
    EXPECT_EQ(comparison.tensors, static_cast<int64_t>(session->ranks().size() * (1 + 4 * params)));
    ASSERT_FALSE(comparison.first.has_value())
        << "step " << step << " rank " << comparison.first->rank << " "
        << (comparison.first->kind ? Name(*comparison.first->kind) : "loss") << " of "
        << job.model().params[comparison.first->param].name;
    EXPECT_EQ(comparison.differing_bits, 0);
  }
}

TEST_P(EagerTest, GraphsTrainToTheSameBits) {
  auto [debug, layout] = GetParam();
  SmallJob job(debug, layout);
  ExpectTheSameBits(job, job.local(), run::Reducer());
}

constexpr Layout kLayouts[] = {
    {"one", 1, 1}, {"fsdp4", 1, 4}, {"ddp4", 4, 1}, {"hsdp2x2", 2, 2}, {"fsdp3", 1, 3}};
constexpr Debug kDebugs[] = {{"llama3", "debugmodel", DType::kF32},
                             {"llama3", "debugmodel", DType::kBF16},
                             {"qwen3", "debugmodel", DType::kBF16},
                             {"qwen3", "debugmodel_moe", DType::kF32},
                             {"deepseek_v3", "debugmodel", DType::kBF16}};
constexpr Layout kTensorLayouts[] = {{"tp2", 1, 1, 2},
                                     {"fsdp2_tp4", 1, 2, 4},
                                     {"hsdp2x2_tp2", 2, 2, 2},
                                     {"fsdp2_tp2_whole_sequences", 1, 2, 2, false},
                                     {"fsdp2_tp2_whole_logits", 1, 2, 2, true, false}};

std::string LayoutName(const testing::TestParamInfo<std::tuple<Debug, Layout>>& info) {
  const Debug& debug = std::get<0>(info.param);
  return fmt::format("{}_{}_{}_{}", debug.family, debug.flavor, Name(debug.compute),
                     std::get<1>(info.param).name);
}
INSTANTIATE_TEST_SUITE_P(All, EagerTest,
                         testing::Combine(testing::ValuesIn(kDebugs), testing::ValuesIn(kLayouts)),
                         LayoutName);
INSTANTIATE_TEST_SUITE_P(Tensor, EagerTest,
                         testing::Combine(testing::ValuesIn({kDebugs[0], kDebugs[1]}),
                                          testing::ValuesIn(kTensorLayouts)),
                         LayoutName);
constexpr Layout kExpertLayouts[] = {{"fsdp8_ep4", 1, 8, 1, true, true, 4},
                                     {"fsdp8_ep8", 1, 8, 1, true, true, 8},
                                     {"fsdp4_tp2_ep4", 1, 4, 2, true, true, 4},
                                     {"fsdp2_tp2_ep2", 1, 2, 2, true, true, 2},
                                     {"fsdp2_tp2_ep4_whole_sequences", 1, 2, 2, false, true, 4},
                                     {"fsdp2_tp2_ep4_whole_logits", 1, 2, 2, true, false, 4},
                                     {"hsdp2x4_ep2", 2, 4, 1, true, true, 2},
                                     // Routers have fewer rows than the number of ranks.
                                     {"fsdp16_ep4", 1, 16, 1, true, true, 4},
                                     {"fsdp4_tp2_ep2_etp2", 1, 4, 2, true, true, 2, 2},
                                     {"hsdp2x2_tp2_ep2_etp2", 2, 2, 2, false, true, 2, 2}};
INSTANTIATE_TEST_SUITE_P(Experts, EagerTest,
                         testing::Combine(testing::ValuesIn({kDebugs[3], kDebugs[4]}),
                                          testing::ValuesIn(kExpertLayouts)),
                         LayoutName);

// Decoders of other families, and mixtures whose experts are not shared.
INSTANTIATE_TEST_SUITE_P(
    OtherTensor, EagerTest,
    testing::Combine(testing::Values(Debug{"qwen3", "debugmodel", DType::kF32}, kDebugs[3],
                                     Debug{"deepseek_v3", "debugmodel", DType::kF32}),
                     testing::ValuesIn({kTensorLayouts[1], kTensorLayouts[3]})),
    LayoutName);

// Windows, softcaps, offset norms; layer norms, biases and embeddings of positions.
constexpr Debug kOtherNorms[] = {{"gemma2", "debugmodel", DType::kF32},
                                 {"gemma3", "debugmodel", DType::kF32},
                                 {"gemma3", "debugmodel", DType::kBF16},
                                 {"gpt2", "debugmodel", DType::kF32},
                                 {"gpt2", "debugmodel", DType::kBF16}};
INSTANTIATE_TEST_SUITE_P(Families, EagerTest,
                         testing::Combine(testing::ValuesIn(kOtherNorms),
                                          testing::Values(kLayouts[1])),
                         LayoutName);

// Ranks with several sequences gather the heads of attention that is composed of matmuls, which
// adds in another order.
TEST(EagerFamilies, SplitHeadsOfOneSequence) {
  run::MakeExact();
  for (const Debug& debug : kOtherNorms) {
    for (const Layout& layout : {kTensorLayouts[1], kTensorLayouts[3]}) {
      SCOPED_TRACE(fmt::format("{} {} {}", debug.family, Name(debug.compute), layout.name));
      SmallJob job(debug, layout, /*rows=*/1);
      ExpectTheSameBits(job, job.local(), run::Reducer());
    }
  }
}

// Sinks; experts with biases.
INSTANTIATE_TEST_SUITE_P(
    BiasedExperts, EagerTest,
    testing::Combine(testing::Values(Debug{"gpt_oss", "debugmodel", DType::kF32},
                                     Debug{"gpt_oss", "debugmodel", DType::kBF16}),
                     testing::ValuesIn({kLayouts[1], kExpertLayouts[0], kExpertLayouts[6]})),
    LayoutName);

// With one sequence per rank, tensor-parallel ranks route parts of it.
TEST(EagerExperts, ShareOneSequence) {
  run::MakeExact();
  for (const Debug& debug : {kDebugs[3], kDebugs[4]}) {
    SmallJob job(debug, {"fsdp4_tp2_ep4", 1, 4, 2, true, true, 4}, /*rows=*/1);
    ExpectTheSameBits(job, job.local(), run::Reducer());
  }
}

constexpr Layout kContextLayouts[] = {
    {"fsdp2_cp2", 1, 2, 1, true, true, 1, 1, 2, kInOrder},
    {"fsdp2_cp2_head_tail", 1, 2, 1, true, true, 1, 1, 2, kHeadTail},
    {"fsdp2_cp2_heads", 1, 2, 1, true, true, 1, 1, 2, kByHeads},
    {"cp4_head_tail", 1, 1, 1, true, true, 1, 1, 4, kHeadTail},
    {"ddp2_cp2_head_tail", 2, 1, 1, true, true, 1, 1, 2, kHeadTail},
    {"hsdp2x2_cp2_head_tail", 2, 2, 1, true, true, 1, 1, 2, kHeadTail},
    {"hsdp2x2_cp2_heads", 2, 2, 1, true, true, 1, 1, 2, kByHeads},
    {"cp2_tp2_head_tail", 1, 1, 2, true, true, 1, 1, 2, kHeadTail},
    {"cp2_tp2_heads", 1, 1, 2, true, true, 1, 1, 2, kByHeads},
    {"cp2_tp2_whole_sequences", 1, 1, 2, false, true, 1, 1, 2, kInOrder},
    {"fsdp2_cp2_ring", 1, 2, 1, true, true, 1, 1, 2, kRing},
    {"cp4_ring_head_tail", 1, 1, 1, true, true, 1, 1, 4, kRingHeadTail},
    {"cp2_tp2_ring_head_tail", 1, 1, 2, true, true, 1, 1, 2, kRingHeadTail}};
constexpr Layout kContextExperts[] = {
    {"fsdp2_cp2_ep2_head_tail", 1, 2, 1, true, true, 2, 1, 2, kHeadTail},
    {"fsdp2_cp2_ep4_heads", 1, 2, 1, true, true, 4, 1, 2, kByHeads},
    {"fsdp4_cp2_ep4_head_tail", 1, 4, 1, true, true, 4, 1, 2, kHeadTail},
    {"fsdp2_cp2_ep2_ring_head_tail", 1, 2, 1, true, true, 2, 1, 2, kRingHeadTail}};

// Ranks with different positions of one sequence.
class EagerContext : public EagerTest {};
TEST_P(EagerContext, GraphsTrainToTheSameBits) {
  auto [debug, layout] = GetParam();
  SmallJob job(debug, layout, /*rows=*/1);
  ExpectTheSameBits(job, job.local(), run::Reducer(), Extent(3, 10));
}
INSTANTIATE_TEST_SUITE_P(All, EagerContext,
                         testing::Combine(testing::ValuesIn(kDebugs),
                                          testing::ValuesIn(kContextLayouts)),
                         LayoutName);
INSTANTIATE_TEST_SUITE_P(Experts, EagerContext,
                         testing::Combine(testing::ValuesIn({kDebugs[3], kDebugs[4]}),
                                          testing::ValuesIn(kContextExperts)),
                         LayoutName);

// Key and value heads are fewer than the ranks, so they are repeated.
INSTANTIATE_TEST_SUITE_P(
    FewHeads, EagerContext,
    testing::Combine(testing::Values(Debug{"llama3", "debugmodel", DType::kF32, 2},
                                     Debug{"llama3", "debugmodel", DType::kBF16, 2}),
                     testing::Values(Layout{"cp4_heads", 1, 1, 1, true, true, 1, 1, 4, kByHeads},
                                     Layout{"cp2_tp2_heads", 1, 1, 2, true, true, 1, 1, 2,
                                            kByHeads})),
    LayoutName);

// Norms of OLMo 2 follow attention, so several products read the residual stream itself.
INSTANTIATE_TEST_SUITE_P(
    Families, EagerContext,
    testing::Combine(testing::Values(Debug{"olmo2", "debugmodel", DType::kF32},
                                     Debug{"qwen2", "debugmodel", DType::kBF16},
                                     Debug{"mixtral", "debugmodel", DType::kF32},
                                     Debug{"gpt2", "debugmodel", DType::kF32}),
                     testing::Values(kContextLayouts[0])),
    LayoutName);

// Attention within documents, on one rank and on ranks that share positions or heads.
constexpr Debug kDocuments[] = {{"llama3", "debugmodel", DType::kF32, 2, true},
                                {"llama3", "debugmodel", DType::kBF16, 2, true},
                                {"qwen3", "debugmodel", DType::kBF16, 0, true},
                                {"deepseek_v3", "debugmodel", DType::kF32, 0, true}};
INSTANTIATE_TEST_SUITE_P(Documents, EagerTest,
                         testing::Combine(testing::ValuesIn(kDocuments),
                                          testing::ValuesIn({kLayouts[1], kTensorLayouts[0]})),
                         LayoutName);
INSTANTIATE_TEST_SUITE_P(Documents, EagerContext,
                         testing::Combine(testing::ValuesIn(kDocuments),
                                          testing::ValuesIn({kContextLayouts[0], kContextLayouts[1],
                                                             kContextLayouts[2], kContextLayouts[3],
                                                             kContextLayouts[7]})),
                         LayoutName);

// Positions, rows of weights and batches that do not divide evenly.
TEST(EagerOrders, AgreeWhereNothingDivides) {
  run::MakeExact();
  SmallJob job(kDebugs[0], {"fsdp3_tp4", 1, 3, 4}, /*rows=*/2, /*seq_len=*/18);
  ExpectTheSameBits(job, job.local(), run::Reducer());
}

// For even payloads, grouping into buckets does not change the bits.
TEST(EagerOrders, AgreeInOtherOrders) {
  run::MakeExact();
  SmallJob job(kDebugs[0], {"fsdp4_tp2", 1, 4, 2});
  for (run::Reducer::Order order : {run::Reducer::Order::kGloo, run::Reducer::Order::kTree})
    ExpectTheSameBits(job, job.local(), run::Reducer(order));
}

}  // namespace
}  // namespace heddle
