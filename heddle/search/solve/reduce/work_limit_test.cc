#include "heddle/search/solve/reduce/work_limit.h"

#include <gtest/gtest.h>

namespace heddle::search {
namespace {

TEST(WorkLimit, IsSpentByWork) {
  WorkLimit limit({.work = 10});
  WorkLimit copy = limit;
  copy.Spend(9);
  EXPECT_FALSE(limit.Spent());
  EXPECT_DOUBLE_EQ(limit.ShareLeft(), 0.1);
  copy.Spend(5);
  EXPECT_TRUE(limit.Spent());
  EXPECT_TRUE(copy.Spent());
  EXPECT_EQ(limit.ShareLeft(), 0);
}

TEST(WorkLimit, PartsAreSpentOfTheWhole) {
  WorkLimit whole({.work = 1000});
  WorkLimit quarter = whole.Part(0.25);
  quarter.Spend(100);
  EXPECT_DOUBLE_EQ(quarter.ShareLeft(), 0.6);
  EXPECT_DOUBLE_EQ(whole.ShareLeft(), 0.9);
  WorkLimit half = quarter.Part(0.5);
  half.Spend(75);
  EXPECT_TRUE(half.Spent());
  EXPECT_FALSE(quarter.Spent());
  EXPECT_DOUBLE_EQ(whole.ShareLeft(), 0.825);
}

TEST(WorkLimit, LeavesTheLeastThatIsAskedFor) {
  WorkLimit whole({.work = 10});
  whole.Spend(10);
  EXPECT_TRUE(whole.Part(0.5).Spent());
  WorkLimit little = whole.Part(0.5, 5);
  little.Spend(4);
  EXPECT_FALSE(little.Spent());
  EXPECT_TRUE(whole.Spent());
}

TEST(WorkLimit, NoneIsNeverSpent) {
  WorkLimit none;
  none.Spend(UINT64_MAX);
  EXPECT_FALSE(none.Spent());
  EXPECT_FALSE(none.Part(0.25).Spent());
  EXPECT_EQ(none.ShareLeft(), 1);
}

// An hour has not passed, and a limit of zero seconds has, independent of the machine's speed.
TEST(WorkLimit, TheClockIsAskedAsWorkIsDone) {
  EXPECT_TRUE(WorkLimit(WorkAmount::Clock(0)).Spent());
  WorkLimit hour(WorkAmount::Clock(3600));
  hour.Spend(1'000'000'000);
  EXPECT_FALSE(hour.Spent());
  EXPECT_FALSE(hour.Part(0.5).Spent());
  WorkLimit moment(WorkAmount::Clock(1e-9));
  while (!moment.Spent()) moment.Spend(1000);
  EXPECT_TRUE(moment.Part(0.5).Spent());
}

TEST(WorkLimit, TimeIsWork) {
  EXPECT_EQ(WorkAmount::Work(2).work, 2 * WorkAmount::Work(1).work);
  EXPECT_EQ(WorkAmount::Work(1).seconds, HUGE_VAL);
  EXPECT_EQ(WorkAmount::Work(0).work, 0u);
}

}  // namespace
}  // namespace heddle::search
