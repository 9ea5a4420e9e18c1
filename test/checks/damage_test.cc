// Damages good texts: every truncation, flipped bits, every number at its limits. A damaged text is
// rejected with a message that points into it, or it is accepted, prints and parses back.
// `make fuzz` runs the same under sanitizers.
#include <algorithm>
#include <cctype>
#include <filesystem>

#include <gtest/gtest.h>

#include "fuzz/exercise.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/test/extent.h"
#include "heddle/core/ir/text/op_example.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

std::vector<std::pair<std::string, std::string>> Corpus() {
  std::vector<std::pair<std::string, std::string>> texts;
  for (const auto& entry : std::filesystem::directory_iterator(HEDDLE_CORPUS)) {
    texts.emplace_back(entry.path().filename(), *ReadFile(entry.path()));
  }
  std::ranges::sort(texts);
  return texts;
}

TEST(Damage, TheCorpusItselfIsAccepted) {
  ASSERT_GE(Corpus().size(), 15u);
  for (const auto& [name, text] : Corpus()) {
    Exercised done = Exercise(text);
    EXPECT_TRUE(done.accepted) << name;
    EXPECT_EQ(done.problem, "") << name;
  }
}

TEST(Damage, EveryTruncation) {
  for (const auto& [name, text] : Corpus()) {
    for (size_t length = 0; length < text.size(); ++length)
      ASSERT_EQ(Exercise(text.substr(0, length)).problem, "") << name << ", " << length << " bytes";
  }
}

// Flips some bits of every byte; all of them in `make soak`.
TEST(Damage, FlipsOfBits) {
  const uint32_t flips = Extent(2, 8);
  for (const auto& [name, text] : Corpus()) {
    std::string damaged = text;
    for (size_t at = 0; at < text.size(); ++at) {
      for (uint32_t n = 0; n < flips; ++n) {
        damaged[at] = static_cast<char>(text[at] ^ (1 << (at + 3 * n) % 8));
        ASSERT_EQ(Exercise(damaged).problem, "") << name << ", byte " << at;
      }
      damaged[at] = text[at];
    }
  }
}

// Returns the text with its n-th number replaced; empty if it has no such number.
std::string WithNumber(const std::string& text, size_t n, std::string_view number) {
  size_t seen = 0;
  for (size_t at = text.find('('); at < text.size(); ++at) {
    bool digit = std::isdigit(text[at]) != 0;
    bool begins = digit && std::isalnum(text[at - 1]) == 0 && text[at - 1] != '_';
    if (!begins || seen++ != n) continue;
    size_t end = at;
    while (end < text.size() && std::isdigit(text[end]) != 0) ++end;
    return text.substr(0, at) + std::string(number) + text.substr(end);
  }
  return "";
}

// Sets sizes, dimensions and attributes of every op to their limits.
TEST(Damage, EveryNumberOfEveryExample) {
  for (OpId id : Ops().ids()) {
    if (id == kOpaqueOp) continue;
    std::string text = Print(MakeExample(Ops(), id)->module);
    // Without result types, the shape rule must compute them.
    std::string untyped = text.substr(0, text.rfind(" : ")) + "\n}\n";
    for (const std::string& base : {text, untyped}) {
      for (size_t n = 0; !WithNumber(base, n, "0").empty(); ++n) {
        for (const char* number :
             {"0", "1", "-1", "3", "64", "2147483648", "4611686018427387904", "9223372036854775807",
              "-9223372036854775808", "-9223372036854775807", "1e300", "nan", "none"}) {
          std::string damaged = WithNumber(base, n, number);
          ASSERT_EQ(Exercise(damaged).problem, "") << damaged;
        }
      }
    }
  }
}

// Each size fits, but their sum does not.
TEST(Damage, SumsBeyondSixtyFourBits) {
  std::string big = "i8[4611686018427387904]";
  std::string text =
      "heddle 1 local\nmesh [dp=2]\ngraph @g(%x: " + big + " param 0 \"x\", %y: " + big +
      " param 1 \"y\", %z: " + big +
      " param 2 \"z\") -> (metric %a, metric %b, metric %c, metric %d) {\n"
      "  %a = aten.neg(%x) : " +
      big + "\n  %b = aten.neg(%a) : " + big +
      "\n"
      "  %h = comm.all_reduce(%x, %y, %z, over=[dp], why=grad)\n  %c, %d, %e = comm.wait(%h)\n}\n";
  EXPECT_TRUE(Exercise(text).accepted);
  EXPECT_FALSE(Exercise("heddle 1 local\nmesh [dp=2]\ngraph @g(%x: " + big +
                        ") -> () {\n"
                        "  %h = comm.all_gather(%x, over=[dp], why=grad)\n}\n")
                   .accepted);
}

}  // namespace
}  // namespace heddle
