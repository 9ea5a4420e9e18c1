#include "heddle/report/run/run_report.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"
#include "heddle/core/base/units.h"

namespace heddle {
namespace {

class RunReportTest : public ::testing::Test {
 protected:
  std::string Write(const std::string& name, const std::string& text) const {
    std::string path = folder_.path() + "/" + name;
    EXPECT_TRUE(WriteFile(path, text).ok());
    return path;
  }
  std::string Message(const std::string& text) const {
    Result<RunLog> log = LoadRunLog(Write("bad.jsonl", text));
    return log.ok() ? "" : log.diagnostics()[0].message;
  }
  RunLog Log(const std::string& name, const std::string& text) const {
    Result<RunLog> log = LoadRunLog(Write(name, text));
    EXPECT_TRUE(log.ok());
    return log.ok() ? *std::move(log) : RunLog();
  }

  TempDir folder_;
};

std::string Row(int64_t step, const std::string& loss, double tps, const std::string& more = "") {
  return fmt::format(
      R"({{"step":{},"loss":{},"grad_norm":1.5,"lr":0.0008,"memory_bytes":1610612736,"tps":{},"seconds":0.25{}}})"
      "\n",
      step, loss, tps, more);
}

TEST(RunLog, FormatsUnits) {
  EXPECT_EQ(FormatAs(RunUnit::kBytes, 0x1p35), "32.00 GiB");
  EXPECT_EQ(FormatAs(RunUnit::kCount, 123456789012.0), "123,456,789,012");
  EXPECT_EQ(FormatAs(RunUnit::kSeconds, 1e9), Format(Nanos{1'000'000'000'000'000'000}));
  EXPECT_EQ(FormatAs(RunUnit::kSeconds, 1e10), "1e+10");
  EXPECT_EQ(FormatAs(RunUnit::kBytes, -1e300), "-1e+300");
}

std::string ThreeRows() {
  return Row(1, "8", 1000) + Row(2, "null", 2000) +
         Row(3, "2", 3000,
             R"(,"mfu":0.5,"validation_loss":2,"samples":[{"prompt":"</script>","text":"a\nb"}])");
}

TEST_F(RunReportTest, SummarizesARun) {
  TrainingReport report{Log("run.jsonl", ThreeRows())};
  EXPECT_EQ(FormatRunReport(report),
            "run.jsonl: 3 steps, 1 to 3, in 750.00 ms\n"
            "\n"
            "                       first       last      least       most       mean\n"
            "loss                       8          2          2          8          5\n"
            "validation loss            2          2          2          2          2\n"
            "gradient norm            1.5        1.5        1.5        1.5        1.5\n"
            "learning rate         0.0008     0.0008     0.0008     0.0008     0.0008\n"
            "tokens/s per rank      1,000      3,000      1,000      3,000      2,000\n"
            "MFU                  50.00 %    50.00 %    50.00 %    50.00 %    50.00 %\n"
            "memory              1.50 GiB   1.50 GiB   1.50 GiB   1.50 GiB   1.50 GiB\n"
            "step time          250.00 ms  250.00 ms  250.00 ms  250.00 ms  250.00 ms\n");
  nlohmann::ordered_json json = ToJson(report);
  EXPECT_EQ(json["metrics"]["loss"].dump(),
            R"({"first":8.0,"last":2.0,"least":2.0,"most":8.0,"mean":5.0})");
  EXPECT_EQ(json["seconds"], 0.75);
  EXPECT_FALSE(json.contains("against"));
  EXPECT_TRUE(json["cut_line"].is_null());
}

TEST_F(RunReportTest, ComparesAtTheLastCommonStep) {
  TrainingReport report{Log("a.jsonl", ThreeRows()),
                        Log("b.jsonl", Row(2, "5", 1000) + Row(3, "4", 1000) + Row(4, "1", 1000))};
  EXPECT_EQ(report.Headline(),
            "at step 3, a.jsonl has a loss of 2, and b.jsonl has a loss of 4; a.jsonl processes "
            "100.0 % more tokens/s per rank");
  report.against = Log("c.jsonl", Row(7, "4", 4000));
  EXPECT_EQ(report.Headline(),
            "a.jsonl and c.jsonl have no step in common; a.jsonl processes 50.0 % fewer tokens/s "
            "per rank");
  EXPECT_EQ(ToJson(report)["against"]["first_step"], 7);
}

TEST_F(RunReportTest, ToleratesOnlyACutLastLine) {
  std::string rows = ThreeRows();
  RunLog log = Log("cut.jsonl", rows + R"({"step":4,"lo)");
  EXPECT_EQ(log.steps.size(), 3u);
  EXPECT_EQ(log.cut_line, 4);
  EXPECT_NE(FormatRunReport({log}).find("line 4 is cut off"), std::string::npos);
  // A complete line without its newline counts.
  EXPECT_EQ(Log("whole.jsonl", rows.substr(0, rows.size() - 1)).steps.size(), 3u);

  std::string damaged = rows;
  damaged[damaged.find("null")] = '?';
  EXPECT_TRUE(
      Message(damaged).ends_with("bad.jsonl`: line 2 is no JSON object; remove the line, or "
                                 "the lines from there on"))
      << Message(damaged);
  EXPECT_NE(Message(rows + "[1]\n").find("line 4 is no JSON object"), std::string::npos);
  EXPECT_NE(Message(rows + rows).find("line 4 has step 1 after step 3; steps must increase"),
            std::string::npos);
  EXPECT_NE(Message("{\"step\":1}\n").find("line 1 has no `step` and `loss`"), std::string::npos);
  EXPECT_NE(Message(Row(1, "\"x\"", 1)).find("line 1 has text as `loss`; expected a number"),
            std::string::npos);
  EXPECT_NE(
      Message(Row(1, "1", 1, R"(,"samples":[{"text":1}])")).find("line 1 has a sample without"),
      std::string::npos);
  EXPECT_NE(Message("").find("has no steps"), std::string::npos);
  EXPECT_NE(Message("{\"st").find("has no steps"), std::string::npos);
}

TEST_F(RunReportTest, ReadsTheFolderOfARun) {
  EXPECT_FALSE(IsRunFolder(folder_.path()));
  Write("metrics.jsonl", ThreeRows());
  EXPECT_TRUE(IsRunFolder(folder_.path()));
  Result<RunLog> log = LoadRunLog(folder_.path());
  ASSERT_TRUE(log.ok());
  EXPECT_EQ(log->Of("tps"), (std::vector<double>{1000, 2000, 3000}));
  EXPECT_TRUE(log->Of("tflops").empty());
}

std::string DataOf(const std::string& page) {
  size_t begin = page.find("id=\"data\">") + 10;
  return page.substr(begin, page.find("</script>", begin) - begin);
}

TEST_F(RunReportTest, ThePageHasEveryStepOfAShortRun) {
  std::string page = FormatRunPage({Log("run.jsonl", ThreeRows())});
  auto data = nlohmann::json::parse(DataOf(page));
  const auto& run = data["runs"][0];
  EXPECT_EQ(run["step"].dump(), "[1,2,3]");
  EXPECT_EQ(run["time"].dump(), "[0.25,0.5,0.75]");
  EXPECT_EQ(run["curves"]["loss"].dump(), R"({"mean":[8.0,null,2.0]})");
  EXPECT_EQ(run["samples"][0]["prompt"], "</script>");
  EXPECT_EQ(DataOf(page).find('<'), std::string::npos);
}

TEST_F(RunReportTest, ThePageMergesStepsOfALongRun) {
  std::string rows;
  for (int64_t step = 1; step <= 4001; ++step)
    rows += Row(step, std::to_string(step % 3), 1000, step == 4 ? R"(,"validation_loss":7)" : "");
  auto data = nlohmann::json::parse(DataOf(FormatRunPage({Log("run.jsonl", rows)})));
  const auto& run = data["runs"][0];
  EXPECT_EQ(run["merged"], 3);
  ASSERT_EQ(run["step"].size(), 1334u);
  EXPECT_EQ(run["first"][1], 4);
  EXPECT_EQ(run["step"][1], 6);
  EXPECT_EQ(run["step"][1333], 4001) << "the last point has the steps that are left";
  EXPECT_EQ(run["time"][1333], 1000.25);
  EXPECT_EQ(run["curves"]["loss"]["mean"][1], 1.0);
  EXPECT_EQ(run["curves"]["loss"]["least"][1], 0.0);
  EXPECT_EQ(run["curves"]["loss"]["most"][1], 2.0);
  EXPECT_TRUE(run["curves"]["validation_loss"]["mean"][0].is_null());
  EXPECT_EQ(run["curves"]["validation_loss"]["mean"][1], 7.0);
}

}  // namespace
}  // namespace heddle
