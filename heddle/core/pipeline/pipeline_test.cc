#include <gtest/gtest.h>

#include "heddle/core/pipeline/schedule.h"
#include "heddle/core/pipeline/test/pytorch_schedules.h"

namespace heddle {
namespace {

PipelineSchedule Make(std::string_view family, int64_t ranks, int64_t stages,
                      int64_t micro_batches) {
  const ScheduleFamily* found = FindScheduleFamily(family);
  HEDDLE_CHECK(found != nullptr, family);
  return *MakeSchedule(*found, {ranks, stages, micro_batches});
}

std::string Mistake(std::string_view csv) {
  Result<ParsedSchedule> parsed = ParseSchedule(csv, "x.csv");
  return parsed.ok() ? "" : parsed.diagnostics().front().message;
}

TEST(Pipeline, FamiliesHaveTheOrderOfPytorch) {
  for (const PytorchSchedule& expected : kPytorchSchedules) {
    EXPECT_EQ(FormatCsv(Make(expected.family, 4, expected.stages, 8)), expected.csv)
        << expected.family;
    Result<ParsedSchedule> parsed = ParseSchedule(expected.csv, "x.csv");
    ASSERT_TRUE(parsed.ok()) << Format(parsed.diagnostics());
    EXPECT_EQ(parsed->schedule.ranks, Make(expected.family, 4, expected.stages, 8).ranks);
  }
}

TEST(Pipeline, GPipeAndLoopedBFS) {
  EXPECT_EQ(FormatCsv(Make("gpipe", 2, 2, 2)), "0F0,0F1,0B0,0B1\n1F0,1F1,1B0,1B1\n");
  EXPECT_EQ(FormatCsv(Make("loopedbfs", 2, 4, 2)),
            "0F0,0F1,2F0,2F1,2B1,2B0,0B1,0B0\n1F0,1F1,3F0,3F1,3B1,3B0,1B1,1B0\n");
}

// Every shape that a family accepts is complete and free of deadlock.
TEST(Pipeline, AcceptedShapesAreValid) {
  int64_t accepted = 0;
  for (const ScheduleFamily& family : ScheduleFamilies())
    for (int64_t ranks = 1; ranks <= 9; ++ranks)
      for (int64_t chunks = 1; chunks <= 4; ++chunks)
        for (int64_t micro_batches = 1; micro_batches <= 20; ++micro_batches) {
          Result<PipelineSchedule> made =
              MakeSchedule(family, {ranks, ranks * chunks, micro_batches});
          if (!made.ok()) continue;
          ++accepted;
          Status checked = CheckPipelineSchedule(*made);
          ASSERT_TRUE(checked.ok()) << family.name << " " << ranks << " x " << chunks << ", "
                                    << micro_batches << ": " << Format(checked.diagnostics());
        }
  EXPECT_GT(accepted, 2000);
}

TEST(Pipeline, ReadsWhatPytorchWrites) {
  Result<ParsedSchedule> parsed = ParseSchedule(
      "\xEF\xBB\xBF"
      "0UNSHARD,0F0,0SEND_F0,,\"0RECV_B0\", 0B0 ,0REDUCE_GRAD,0RESHARD\r\n"
      "1RECV_F0,,1F0,1I0,1SEND_B0,1W0,,\r\n\r\n",
      "x.csv");
  ASSERT_TRUE(parsed.ok()) << Format(parsed.diagnostics());
  EXPECT_EQ(FormatCsv(parsed->schedule), "0F0,0B0\n1F0,1I0,1W0\n");
  EXPECT_EQ(parsed->communication, 7);
  EXPECT_EQ(parsed->schedule.stages, 2);
}

TEST(Pipeline, PlansStateNamesOrRows) {
  for (const ScheduleFamily& family : ScheduleFamilies()) {
    PipelineShape shape{2, family.stages == StagesPerRank::kOne ? 2 : 4, 4};
    PipelineSchedule made = *MakeSchedule(family, shape);
    EXPECT_EQ(FindSchedule(family.name, shape)->ranks, made.ranks) << family.name;
    std::string rows = FormatRows(made);
    Result<PipelineSchedule> found = FindSchedule(rows, shape);
    ASSERT_TRUE(found.ok()) << Format(found.diagnostics());
    EXPECT_EQ(found->ranks, made.ranks) << rows;
    EXPECT_EQ(ScheduleName(rows), "csv");
    EXPECT_EQ(ScheduleName(family.name), family.name);
    shape.micro_batches = 8;
    EXPECT_FALSE(FindSchedule(rows, shape).ok());
  }
  EXPECT_EQ(ScheduleName("zbv"), "ZBVZeroBubble");
  EXPECT_FALSE(FindSchedule("2F2B", {2, 2, 4}).ok());
}

TEST(Pipeline, MistakesInFiles) {
  EXPECT_EQ(Mistake(""), "the schedule has no actions");
  for (const char* text :
       {"F0", "0", "0F", "0G0", "-1F0", "0F0x", "99999999999F0", "0SEND_Fx", "(0F0;0B0",
        "(0F0)OVERLAP_F_B", "(0F0;0B0)OVERLAP", "(0F0;0UNSHARD)OVERLAP_F_B"})
    EXPECT_TRUE(Mistake(text).ends_with("or a pair `(0F7;7B3)OVERLAP_F_B`")) << Mistake(text);
  EXPECT_EQ(Mistake("0F2000000,0B0"),
            "1 stages x 2,000,001 micro-batches are too many; the limit is 1,048,576");
  EXPECT_EQ(Mistake("0F0,0B0\n\n1F0,1B0"), "rank 1 has no actions; write one line per rank");
  EXPECT_EQ(Mistake("0F0,0B0,1F0\n1B0"),
            "stage 1 is on rank 0 (`1F0`) and on rank 1 (`1B0`); a stage belongs to one rank");
  EXPECT_EQ(Mistake("0F0,0B0\n2F0,2B0"), "stage 1 has no actions; the last stage is 2");
  EXPECT_EQ(Mistake("0F0,0F0,0B0"), "`0F0` occurs twice on rank 0");
  EXPECT_EQ(
      Mistake("0F0,0B0,0W0"),
      "rank 0 has `0W0` besides another backward of this micro-batch; use either B, or I and W");
  EXPECT_EQ(Mistake("0F0,0B0,0F1"),
            "`0B1` is missing; the last stage is 0, and the last micro-batch 1");
  EXPECT_EQ(Mistake("0F0,0I0"),
            "`0W0` is missing; the last stage is 0, and the last micro-batch 0");
  EXPECT_EQ(Mistake("0B0"), "`0F0` is missing; the last stage is 0, and the last micro-batch 0");
}

TEST(Pipeline, DeadlocksNameTheirCycle) {
  EXPECT_EQ(
      Mistake("0B0,0F0"),
      "the schedule deadlocks: `0B0` on rank 0 waits for `0F0`, which rank 0 runs after `0B0`");
  EXPECT_EQ(
      Mistake("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1"),
      "the schedule deadlocks: `0B0` on rank 0 waits for `1B0`, which rank 1 runs after `1F1`; "
      "`1F1` on rank 1 waits for `0F1`, which rank 0 runs after `0B0`");
  // A pair waits for the inputs of both actions.
  EXPECT_EQ(Mistake("(0F0;0B0)OVERLAP_F_B"),
            "the schedule deadlocks: `0B0` on rank 0 waits for `0F0`");
}

TEST(Pipeline, RefusedShapes) {
  auto refusal = [](std::string_view family, const PipelineShape& shape) {
    Result<PipelineSchedule> made = MakeSchedule(*FindScheduleFamily(family), shape);
    return made.ok() ? "" : made.diagnostics().front().message;
  };
  EXPECT_EQ(refusal("1F1B", {4, 8, 8}),
            "1F1B has one stage per rank; 4 ranks cannot have 8 stages");
  EXPECT_EQ(refusal("zbv", {4, 4, 8}),
            "ZBVZeroBubble has two stages per rank; 4 ranks need 8 stages, not 4");
  EXPECT_EQ(refusal("Interleaved1F1B", {4, 6, 8}),
            "6 stages cannot be divided equally among 4 ranks");
  EXPECT_EQ(refusal("Interleaved1F1B", {4, 8, 9}),
            "Interleaved1F1B runs in 9 / 4 = 2 rounds, and 9 micro-batches are not a multiple of "
            "2; use 8 or 12");
  EXPECT_EQ(refusal("DualPipeV", {4, 8, 7}),
            "DualPipeV needs at least as many micro-batches as stages; 7 is fewer than 8");
  // PyTorch refuses fewer micro-batches than stages here.
  EXPECT_EQ(refusal("1F1B", {4, 4, 3}), "");
}

}  // namespace
}  // namespace heddle
