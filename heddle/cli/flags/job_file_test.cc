#include <algorithm>

#include <gtest/gtest.h>

#include "heddle/cli/flags/job_file.h"

namespace heddle {
namespace {

std::string Refusal(std::string_view text) {
  return Format(ParseJob("job.toml", text).diagnostics());
}

TEST(JobFile, EntriesComeInTheOrderOfTheText) {
  Result<std::vector<JobEntry>> job = ParseJob("job.toml",
                                               "precision = \"f32\"\n"
                                               "[training]\n"
                                               "steps = 10\n"
                                               "[compile]\n"
                                               "disable_passes = [\"a\", \"b\"]\n"
                                               "[optimizer]\n"
                                               "lr = 8e-4\n"
                                               "beta1 = 1\n"
                                               "debug.deterministic = true\n");
  ASSERT_TRUE(job.ok()) << Format(job.diagnostics());
  std::string shown;
  for (const JobEntry& entry : *job) {
    shown += fmt::format("{} {} ", entry.key, static_cast<int>(entry.value.kind));
    for (const std::string& text : entry.value.texts) shown += text + ";";
    shown += fmt::format(" {}+{}\n", entry.offset, entry.width);
  }
  EXPECT_EQ(shown,
            "precision 0 f32; 0+9\n"
            "training.steps 1 10; 29+5\n"
            "compile.disable_passes 4 a;b; 50+14\n"
            "optimizer.lr 2 8e-04; 90+2\n"
            "optimizer.beta1 1 1; 100+5\n"
            "optimizer.debug.deterministic 3 true; 116+13\n");
}

TEST(JobFile, MistakesAreNamedWithTheirPlace) {
  EXPECT_EQ(Refusal("[training]\nsteps = 10 20\n"),
            "job.toml:2:12: not TOML: expected a key and a value, as in `steps = 10`, and nothing "
            "after them [job-file]\n"
            "steps = 10 20\n"
            "           ^\n");
  EXPECT_EQ(Refusal("\"ü\".b = [1]\nc = 1979-05-27\n"),
            "job.toml:1:6: `ü.b` is a list with other things than texts [job-file]\n"
            "\"ü\".b = [1]\n"
            "     ^\n"
            "job.toml:2:1: `c` is a date or time, expected a text, a number, true, false or a list "
            "of texts [job-file]\n"
            "c = 1979-05-27\n"
            "^\n");
  EXPECT_EQ(Refusal("\"training.steps\" = 1\n[training]\nsteps = 2\n"),
            "job.toml:3:1: `training.steps` is given twice, before in line 1 [job-file]\n"
            "steps = 2\n"
            "^~~~~\n");
  EXPECT_NE(Refusal("\xFF = 1\n").find("[job-file]"), std::string::npos);
  // Neither deep nor wide inputs crash the process.
  EXPECT_NE(Refusal("a = " + std::string(100000, '[')).find("[job-file]"), std::string::npos);
  std::string deep;
  for (int i = 0; i < 900; ++i) deep += "a.";
  EXPECT_TRUE(ParseJob("job.toml", deep + "a = 1\n").ok());
  for (int i = 0; i < 900000; ++i) deep += "a.";
  EXPECT_NE(Refusal(deep + "a = 1\n").find("a line with 900900 dots"), std::string::npos);
}

TEST(JobFile, WhatIsWrittenReadsBack) {
  std::vector<JobLine> lines{
      {"training.steps", JobValue{JobValueKind::kInt, {"10"}}, "flag"},
      {"precision", JobValue{JobValueKind::kText, {"a \"b\" \\ \n \x7F ü"}}, "job.toml:1"},
      {"training.seq_len", std::nullopt, ""},
      {"training.lr", JobValue{JobValueKind::kNumber, {"8e-04"}}, "default"},
      {"compile.passes", JobValue{JobValueKind::kTexts, {"x", "y\ty"}}, "default"},
      {"training.deep", JobValue{JobValueKind::kBool, {"false"}}, "default"},
  };
  std::string text = FormatJob(lines);
  EXPECT_EQ(text,
            "precision = \"a \\\"b\\\" \\\\ \\u000A \\u007F ü\"   # job.toml:1\n"
            "\n[training]\n"
            "steps = 10    # flag\n"
            "# seq_len is not set\n"
            "lr = 8e-04    # default\n"
            "deep = false  # default\n"
            "\n[compile]\n"
            "passes = [\"x\", \"y\\u0009y\"]  # default\n");
  Result<std::vector<JobEntry>> back = ParseJob("job.toml", text);
  ASSERT_TRUE(back.ok()) << Format(back.diagnostics());
  ASSERT_EQ(back->size(), 5u);
  for (const JobEntry& entry : *back) {
    auto line = std::ranges::find(lines, entry.key, &JobLine::key);
    ASSERT_NE(line, lines.end());
    EXPECT_EQ(entry.value.kind, line->value->kind);
    EXPECT_EQ(entry.value.texts, line->value->texts);
  }
}

}  // namespace
}  // namespace heddle
