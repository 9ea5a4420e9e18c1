// Distribution of rows over experts.
#include "heddle/price/cost/expert_skew.h"

#include <gtest/gtest.h>

#include "heddle/core/base/file.h"

namespace heddle::price {
namespace {

// Parses a file with this text.
Result<ExpertSkew> FromFile(const std::string& text) {
  std::string path = testing::TempDir() + "/load";
  EXPECT_TRUE(WriteFile(path, text).ok());
  return ParseExpertSkew(path);
}

std::string Mistake(const std::string& text) {
  Result<ExpertSkew> skew = FromFile(text);
  return skew.ok() ? "none" : Format(skew.diagnostics());
}

TEST(ExpertSkew, TheRankWithTheMostDecides) {
  EXPECT_EQ(*LargestShare(*ParseExpertSkew("uniform"), "layers.1", 8, 4), 1.0);
  // 8 + 4 of 8 + 4 + 8/3 + 2.
  EXPECT_NEAR(*LargestShare(*ParseExpertSkew("zipf:1"), "layers.1", 4, 2), 2 * 12 / (12 + 14.0 / 3),
              1e-12);
  // Experts 2 and 3 are on one rank.
  EXPECT_EQ(*LargestShare(*FromFile("[1, 2, 5, 2]"), "layers.1", 4, 2), 1.4);
  EXPECT_EQ(*LargestShare(*FromFile("1 2\n5 2\n"), "layers.1", 4, 2), 1.4);
}

TEST(ExpertSkew, EveryLayerHasItsOwn) {
  ExpertSkew skew = *FromFile(R"({"layers.1": [1, 1], "layers.11": [1, 3]})");
  EXPECT_EQ(*LargestShare(skew, "layers.1.moe.experts", 2, 2), 1.0);
  EXPECT_EQ(*LargestShare(skew, "layers.11.moe", 2, 2), 1.5);
  EXPECT_NE(Format(LargestShare(skew, "layers.2.moe", 2, 2).diagnostics())
                .find("no counts for `layers.2.moe`"),
            std::string::npos);
  EXPECT_NE(Format(LargestShare(skew, "layers.1.moe", 4, 2).diagnostics())
                .find("counts for 2 experts, but the graph has 4"),
            std::string::npos);
}

TEST(ExpertSkew, TheLastStepOfMetricsCounts) {
  ExpertSkew skew = *FromFile(
      "{\"step\": 1, \"tokens_per_expert\": {\"layers.1\": [1, 1]}}\n"
      "{\"step\": 2, \"loss\": 3, \"tokens_per_expert\": {\"layers.1\": [1, 3]}}\n"
      "{\"step\": 3, \"loss\": 3}\n");
  EXPECT_EQ(*LargestShare(skew, "layers.1", 2, 2), 1.5);
}

TEST(ExpertSkew, MistakesAreNamed) {
  EXPECT_NE(Mistake("1 x").find("`x` is not a number of rows"), std::string::npos);
  EXPECT_NE(Mistake("0 0").find("the counts of 2 experts add up to 0"), std::string::npos);
  EXPECT_NE(Mistake("").find("0 experts"), std::string::npos);
  EXPECT_NE(Mistake("{\"a\": 3}").find("`a` has a number, expected a list"), std::string::npos);
  EXPECT_NE(Mistake("{\"a\": [-1]}").find("expected a list of counts"), std::string::npos);
  EXPECT_NE(Mistake("{}").find("no layer has counts"), std::string::npos);
  EXPECT_NE(Mistake("{\"tokens_per_expert\": 3").find("[json]"), std::string::npos);
  EXPECT_FALSE(ParseExpertSkew("zipf:-1").ok());
  EXPECT_FALSE(ParseExpertSkew("zipf:").ok());
}

}  // namespace
}  // namespace heddle::price
