#include "heddle/search/solve/reduce/limit.h"

#include <gtest/gtest.h>

namespace heddle::search {
namespace {

TEST(Limit, IsSpentByWork) {
  Limit limit({.work = 10});
  Limit copy = limit;
  copy.Spend(9);
  EXPECT_FALSE(limit.Spent());
  EXPECT_DOUBLE_EQ(limit.ShareLeft(), 0.1);
  copy.Spend(5);
  EXPECT_TRUE(limit.Spent());
  EXPECT_TRUE(copy.Spent());
  EXPECT_EQ(limit.ShareLeft(), 0);
}

TEST(Limit, PartsAreSpentOfTheWhole) {
  Limit whole({.work = 1000});
  Limit quarter = whole.Part(0.25);
  quarter.Spend(100);
  EXPECT_DOUBLE_EQ(quarter.ShareLeft(), 0.6);
  EXPECT_DOUBLE_EQ(whole.ShareLeft(), 0.9);
  Limit half = quarter.Part(0.5);
  half.Spend(75);
  EXPECT_TRUE(half.Spent());
  EXPECT_FALSE(quarter.Spent());
  EXPECT_DOUBLE_EQ(whole.ShareLeft(), 0.825);
}

TEST(Limit, LeavesTheLeastThatIsAskedFor) {
  Limit whole({.work = 10});
  whole.Spend(10);
  EXPECT_TRUE(whole.Part(0.5).Spent());
  Limit little = whole.Part(0.5, 5);
  little.Spend(4);
  EXPECT_FALSE(little.Spent());
  EXPECT_TRUE(whole.Spent());
}

TEST(Limit, NoneIsNeverSpent) {
  Limit none;
  none.Spend(UINT64_MAX);
  EXPECT_FALSE(none.Spent());
  EXPECT_FALSE(none.Part(0.25).Spent());
  EXPECT_EQ(none.ShareLeft(), 1);
}

// An hour has not passed, and a limit of zero seconds has, independent of the machine's speed.
TEST(Limit, TheClockIsAskedAsWorkIsDone) {
  EXPECT_TRUE(Limit(Allowance::Clock(0)).Spent());
  Limit hour(Allowance::Clock(3600));
  hour.Spend(1'000'000'000);
  EXPECT_FALSE(hour.Spent());
  EXPECT_FALSE(hour.Part(0.5).Spent());
  Limit moment(Allowance::Clock(1e-9));
  while (!moment.Spent()) moment.Spend(1000);
  EXPECT_TRUE(moment.Part(0.5).Spent());
}

TEST(Limit, TimeIsWork) {
  EXPECT_EQ(Allowance::Work(2).work, 2 * Allowance::Work(1).work);
  EXPECT_EQ(Allowance::Work(1).seconds, HUGE_VAL);
  EXPECT_EQ(Allowance::Work(0).work, 0u);
}

}  // namespace
}  // namespace heddle::search
