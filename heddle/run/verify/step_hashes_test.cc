#include "heddle/run/verify/step_hashes.h"

#include <gtest/gtest.h>

namespace heddle::run {
namespace {

StepHashes Of(std::string_view lines) {
  StepHashes hashes;
  EXPECT_TRUE(hashes.Add(lines).ok());
  return hashes;
}

TEST(StepHashes, EqualNumbersMayBeWrittenDifferently) {
  StepHashes ours = Of(R"({"step":1,"rank":0,"loss":"0x1.8p+1"})");
  StepHashes theirs = Of(R"({"step":1,"rank":0,"loss":"0x1.8000000000000p+1"})");
  EXPECT_FALSE(HashDifference::Find(ours, theirs));
}

TEST(StepHashes, LossesComeBeforeGradientsAndParameters) {
  constexpr std::string_view kOurs = R"(
{"rank":0,"name":"a","shape":[2],"sha256":"1"}
{"rank":0,"name":"a.grad","shape":[2],"sha256":"2"}
{"rank":1,"name":"a.grad","shape":[2],"sha256":"2"}
{"rank":1,"loss":"0x1p+0"})";
  StepHashes ours = Of(kOurs);
  EXPECT_EQ(ours.size(), 4U);
  StepHashes theirs = Of(kOurs);
  ASSERT_TRUE(theirs.Add(R"({"rank":0,"name":"a","shape":[2],"sha256":"7"})").ok());
  EXPECT_EQ(HashDifference::Find(ours, theirs)->name, "a");
  ASSERT_TRUE(theirs.Add(R"({"rank":1,"name":"a.grad","shape":[2],"sha256":"7"})").ok());
  std::optional<HashDifference> found = HashDifference::Find(ours, theirs);
  EXPECT_EQ(found->name, "a.grad");
  EXPECT_EQ(found->rank, 1);
  ASSERT_TRUE(theirs.Add(R"({"rank":1,"loss":"0x1.8p+0"})").ok());
  found = HashDifference::Find(ours, theirs);
  EXPECT_EQ(found->name, "loss");
  EXPECT_EQ(found->first, "0x1p+0");
  EXPECT_EQ(found->second, "0x1.8p+0");
  EXPECT_EQ(found->differing, 3U);
  EXPECT_EQ(found->compared, 4U);
}

TEST(StepHashes, OneProgramAlone) {
  StepHashes ours = Of(R"({"rank":0,"loss":"0x1p+0"})");
  StepHashes theirs = Of(R"({"rank":0,"loss":"0x1p+0"}
{"rank":0,"name":"a","shape":[0],"sha256":"1"})");
  std::optional<HashDifference> found = HashDifference::Find(ours, theirs);
  EXPECT_EQ(found->name, "a");
  EXPECT_EQ(found->first, "missing");
}

TEST(StepHashes, RefusesOtherText) {
  StepHashes hashes;
  EXPECT_FALSE(hashes.Add("Traceback").ok());
  EXPECT_FALSE(hashes.Add(R"({"rank":0})").ok());
  EXPECT_FALSE(hashes.Add(R"({"rank":"0","loss":"0x1p+0"})").ok());
}

}  // namespace
}  // namespace heddle::run
