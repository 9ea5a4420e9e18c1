// FSDP's schedule trains to the bits of eager FSDP2 with every order of additions; without buckets,
// only in rank order.
#include <gtest/gtest.h>

#include "test/fsdp/job.h"

namespace heddle {
namespace {

constexpr std::string_view kPipeline =
    "clean, reshard-after-forward{{policy={0}}}, dce, bucket-by-unit{{order={1}}}, "
    "separate-communicators, prefetch{{forward={2},backward={2}}}";

std::string Fsdp(std::string_view policy = "default", std::string_view order = "parameter",
                 int depth = 1) {
  return fmt::format(fmt::runtime(kPipeline), policy, order, depth);
}

struct Case {
  const char* name;
  JobOptions job;
};
constexpr Case kCases[] = {
    {"llama3_f32_fsdp4", {"llama3", "debugmodel", DType::kF32, 1, 4}},
    {"llama3_f32_odd_fsdp8", {"llama3", "debugmodel", DType::kF32, 1, 8, 1, true}},
    {"llama3_bf16_hsdp2x2", {"llama3", "debugmodel", DType::kBF16, 2, 2}},
    {"llama3_f32_odd_hsdp2x4", {"llama3", "debugmodel", DType::kF32, 2, 4, 1, true}},
    {"llama3_f32_odd_ddp4", {"llama3", "debugmodel", DType::kF32, 4, 1, 1, true}},
    {"qwen3_f32_odd_fsdp8", {"qwen3", "debugmodel", DType::kF32, 1, 8, 1, true}},
    {"qwen3_moe_f32_hsdp2x2", {"qwen3", "debugmodel_moe", DType::kF32, 2, 2}},
    {"deepseek_v3_f32_fsdp4", {"deepseek_v3", "debugmodel", DType::kF32, 1, 4}},
    {"deepseek_v3_bf16_hsdp2x2", {"deepseek_v3", "debugmodel", DType::kBF16, 2, 2}}};

class FsdpAgainstEager : public testing::TestWithParam<Case> {};

TEST_P(FsdpAgainstEager, HasTheSameBits) {
  FsdpJob job(GetParam().job);
  for (std::string_view reducer : {"gloo", "ring:4", "rank"}) {
    for (std::string_view policy : {"always", "never", "default"}) {
      EXPECT_EQ(
          Describe(job.AgainstEager(job.Compiled(Fsdp(policy)), *run::Reducer::Parse(reducer), 3)),
          "equal")
          << reducer << " " << policy;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, FsdpAgainstEager, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(Fsdp, OnTensorParallelRanksTooItHasTheBitsOfEager) {
  FsdpJob job({"llama3", "debugmodel", DType::kF32, 1, 4, 2});
  for (std::string_view reducer : {"gloo", "ring:4", "rank"}) {
    EXPECT_EQ(Describe(job.AgainstEager(job.Compiled(Fsdp()), *run::Reducer::Parse(reducer), 3)),
              "equal")
        << reducer;
  }
}

TEST(Fsdp, IsTheNamedPipeline) {
  FsdpJob job({"llama3", "debugmodel", DType::kF32, 1, 8, 1, true});
  EXPECT_EQ(Describe(job.AgainstEager(job.Compiled("fsdp"), *run::Reducer::Parse("gloo"), 3)),
            "equal");
}

TEST(Fsdp, AnyDepthHasTheSameBits) {
  FsdpJob job({"llama3", "debugmodel", DType::kF32, 1, 8, 1, true});
  for (int depth = 0; depth <= 3; ++depth) {
    Module graph = job.Compiled(Fsdp("always", "parameter", depth));
    EXPECT_EQ(Describe(job.AgainstEager(graph, *run::Reducer::Parse("ring:4"), 3)), "equal")
        << depth;
  }
}

// With one reduction per parameter, every tensor begins a payload.
TEST(None, EqualsEagerInRankOrderOnly) {
  FsdpJob job({"llama3", "debugmodel", DType::kF32, 1, 8, 1, true});
  Module graph = job.Compiled("none");
  EXPECT_EQ(Describe(job.AgainstEager(graph, *run::Reducer::Parse("rank"), 3)), "equal");
  EXPECT_NE(Describe(job.AgainstEager(graph, *run::Reducer::Parse("gloo"), 3)), "equal");
}

TEST(PayloadOrder, OfTheGraphDiffersWhereOffsetsDecideTheOrderOfAdditions) {
  FsdpJob job({"llama3", "debugmodel", DType::kF32, 1, 8, 1, true});
  Module by_graph = job.Compiled(Fsdp("default", "graph"));
  EXPECT_EQ(Describe(job.AgainstEager(by_graph, *run::Reducer::Parse("rank"), 3)), "equal");
  EXPECT_NE(Describe(job.AgainstEager(by_graph, *run::Reducer::Parse("gloo"), 3)), "equal");
  EXPECT_NE(Describe(job.AgainstEager(by_graph, *run::Reducer::Parse("ring:4"), 3)), "equal");
}

TEST(PayloadOrder, ShowsOnManyRanks) {
  FsdpJob job({"llama3", "debugmodel", DType::kF32, 1, 64});
  run::Reducer ring = *run::Reducer::Parse("ring:4");
  EXPECT_EQ(Describe(job.AgainstEager(job.Compiled("fsdp"), ring, 2)), "equal");
  EXPECT_NE(Describe(job.AgainstEager(job.Compiled(Fsdp("default", "graph")), ring, 2)), "equal");
}

// There is no eager tensor parallelism for these models. In rank order a bucket changes no bit.
TEST(Fsdp, EqualsNoneOnTensorParallelRanksOfOtherModels) {
  for (const JobOptions& options :
       {JobOptions{"qwen3", "debugmodel", DType::kF32, 1, 4, 2},
        JobOptions{"deepseek_v3", "debugmodel", DType::kF32, 1, 4, 2}}) {
    FsdpJob job(options);
    EXPECT_EQ(Describe(job.Against(job.Compiled("fsdp"), job.Compiled("none"),
                                   *run::Reducer::Parse("rank"), 3)),
              "equal")
        << options.family;
  }
}

}  // namespace
}  // namespace heddle
