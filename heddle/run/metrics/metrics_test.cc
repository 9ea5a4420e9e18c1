#include <cmath>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "heddle/core/base/file.h"
#include "heddle/run/metrics/crc32.h"
#include "heddle/run/metrics/loss_curve.h"
#include "heddle/run/metrics/metrics_file.h"
#include "heddle/run/metrics/progress.h"
#include "heddle/run/metrics/training_log.h"

namespace heddle::run {
namespace {

StepMetrics Metrics(int64_t step, double loss) {
  StepMetrics m;
  m.step = step;
  m.loss = loss;
  m.grad_norm = 1.5;
  m.lr = 0.0008;
  m.memory = MiB(1536);
  m.memory_share = 0.0625;
  m.tps = 1234.4;
  m.tflops = 0.125;
  m.mfu = 0.031;
  m.seconds = 0.25;
  return m;
}

TEST(StepLine, IsTorchTitans) {
  StepMetrics m = Metrics(1, 8.1234567);
  EXPECT_EQ(StepLine(m, false),
            "step:  1  loss:  8.12346  grad_norm:  1.5000  memory:  1.50GiB(6.25%)  tps: 1,234  "
            "tflops: 0.12  mfu: 3.10%");
  m.mfu.reset();
  m.tflops = 12345.678;
  m.loss = NAN;
  EXPECT_EQ(StepLine(m, false),
            "step:  1  loss:      nan  grad_norm:  1.5000  memory:  1.50GiB(6.25%)  tps: 1,234  "
            "tflops: 12,345.68");
  EXPECT_EQ(StepLine(m, true),
            "\x1b[31mstep:  1  \x1b[32mloss:      nan  \x1b[38;2;180;60;0mgrad_norm:  1.5000  "
            "\x1b[38;2;54;234;195mmemory:  1.50GiB(6.25%)  \x1b[34mtps: 1,234  "
            "\x1b[36mtflops: 12,345.68\x1b[39m");
  m.tflops = 0.004;
  EXPECT_EQ(StepLine(m, false),
            "step:  1  loss:      nan  grad_norm:  1.5000  memory:  1.50GiB(6.25%)  tps: 1,234");
  m.validation_loss = 4.25;
  EXPECT_EQ(
      ValidationLine(m, false),
      "validate step:  1  loss:  4.2500  perplexity: 70.105  memory:  1.50GiB(6.25%)  tps: 1,234");
  m.validation_loss = 12;
  EXPECT_NE(ValidationLine(m, false).find("  perplexity: 1.6275e+05  "), std::string::npos);
  // With a z-loss or an auxiliary loss, exp(loss) is not the perplexity.
  m.is_cross_entropy = false;
  EXPECT_EQ(ValidationLine(m, false),
            "validate step:  1  loss: 12.0000  memory:  1.50GiB(6.25%)  tps: 1,234");
}

TEST(Progress, SaysWhatIsLeft) {
  EXPECT_EQ(ProgressLine("step", 0, 3, 12, 3), "step 3 of 12 [######..................] 9 s left");
  // The ten steps of the earlier run do not count in the rate.
  EXPECT_EQ(ProgressLine("step", 10, 12, 24, 100),
            "step 12 of 24 [############............] 10 min 00 s left");
  EXPECT_EQ(ProgressLine("step", 0, 0, 24, 0), "step 0 of 24 [........................]");
  EXPECT_EQ(ProgressLine("step", 0, 1, 1000, 60),
            "step 1 of 1000 [........................] 16 h 39 min left");
}

TEST(LossCurve, FallsFromLeftToRight) {
  std::vector<double> losses;
  for (int i = 0; i < 40; ++i) losses.push_back(8.0 * std::exp(-i / 10.0));
  EXPECT_EQ(LossCurve(losses, 1, {20, 5}),
            "       8 ┤⠹⡄\n"
            "         │ ⠙⢦\n"
            "   4.081 ┤  ⠈⠳⣄\n"
            "         │    ⠈⠙⠦⣄⣀\n"
            "  0.1619 ┤        ⠈⠉⠓⠒⠦⠤⠤⢤⣀⣀⣀⣀\n"
            "         └────────────────────\n"
            "          1            step 40\n");
  // A column without steps keeps the height of the previous one.
  EXPECT_EQ(LossCurve(std::vector<double>{2, NAN, 1}, 7, {6, 2}),
            "       2 ┤⠉⠉⠉⠉⡇\n"
            "       1 ┤    ⣇⣀\n"
            "         └──────\n"
            "          7 step 9\n");
  EXPECT_EQ(LossCurve(std::vector<double>{2, NAN}, 1), "");
  EXPECT_EQ(LossCurve(std::vector<double>(4, 3.0), 1, {4, 2}),
            "       3 ┤⠉⠉⠉⠉\n"
            "       3 ┤\n"
            "         └────\n"
            "          1 step 4\n");
}

TEST(Crc32c, IsCastagnolis) {
  EXPECT_EQ(Crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(MaskedCrc32c("123456789"), ((0xE3069283u >> 15 | 0xE3069283u << 17) + 0xA282EAD8u));
}

class LogTest : public ::testing::Test {
 protected:
  std::string Path(const std::string& name) const { return dir_.path() + "/" + name; }
  void Run(const TrainingLogOptions& options, int64_t begin, int64_t end) {
    auto log = TrainingLog::Open(options, out_, err_);
    ASSERT_TRUE(log.ok()) << Format(log.diagnostics());
    for (int64_t step = begin; step <= end; ++step)
      (*log)->Add(Metrics(step, 10.0 / static_cast<double>(step)));
    (*log)->Finish();
  }

  TempDir dir_;
  std::ostringstream out_;
  std::ostringstream err_;
};

TEST(StepLine, EndsWithTheImbalanceOfExperts) {
  StepMetrics m = Metrics(1, 2);
  std::string without = StepLine(m, false);
  m.experts = {{"layers.1", {3, 5}}, {"layers.2", {0, 0}}, {"layers.3", {2, 6}}};
  EXPECT_EQ(StepLine(m, false), without + "  experts: 1.50x");
}

TEST_F(LogTest, JsonlGoesOnAsIfNothingHadHappened) {
  TrainingLogOptions options{.steps = 6, .jsonl = Path("a.jsonl")};
  Run(options, 1, 6);
  std::string whole = *ReadFile(options.jsonl);
  EXPECT_EQ(
      whole.substr(0, whole.find('\n')),
      R"({"step":1,"loss":10.0,"grad_norm":1.5,"lr":0.0008,"memory_bytes":1610612736,)"
      R"("memory_share":0.0625,"tps":1234.4,"tflops":0.125,"seconds":0.25,"data_seconds":0.0,"mfu":0.031})");
  // Stopped in the middle of step 5; the last checkpoint is that of step 3.
  std::ofstream(options.jsonl, std::ios::binary) << whole.substr(0, whole.rfind("{\"step\":5") + 9);
  options.after_step = 3;
  Run(options, 4, 6);
  EXPECT_EQ(*ReadFile(options.jsonl), whole);
  // A run from the start keeps nothing.
  options.after_step = 0;
  Run(options, 1, 6);
  EXPECT_EQ(*ReadFile(options.jsonl), whole);
}

TEST_F(LogTest, WhatJsonCannotSayIsNull) {
  auto file = OpenJsonl(Path("b.jsonl"), 0);
  ASSERT_TRUE(file.ok());
  StepMetrics m = Metrics(1, NAN);
  m.experts = {{"layers.1", {3, 5}}};
  m.validation_loss = 2;
  m.samples = {{"Once", " \"upon\"\n\xFF"}};
  ASSERT_TRUE((*file)->Write(m).ok());
  auto json = nlohmann::json::parse(*ReadFile(Path("b.jsonl")));
  EXPECT_TRUE(json["loss"].is_null());
  EXPECT_EQ(json["validation_loss"], 2.0);
  EXPECT_EQ(json["validation_perplexity"], std::exp(2.0));
  EXPECT_EQ(json["tokens_per_expert"]["layers.1"], (std::vector<int64_t>{3, 5}));
  EXPECT_EQ(json["expert_imbalance"], 1.25);
  EXPECT_EQ(json["samples"].dump(), "[{\"prompt\":\"Once\",\"text\":\" \\\"upon\\\"\\n\uFFFD\"}]");
  EXPECT_EQ(SampleLine(7, m.samples[0], false),
            "sample step:  7  prompt: \"Once\"  text: \" \\\"upon\\\"\\n\xFF\"");
}

TEST_F(LogTest, LinesAreThinnedOutAndFilesAreNot) {
  TrainingLogOptions options{.steps = 25, .log_every = 10, .jsonl = Path("c.jsonl")};
  Run(options, 1, 25);
  std::string lines = out_.str();
  std::vector<std::string> steps;
  for (size_t at = 0; (at = lines.find("step: ", at)) != std::string::npos; ++at)
    steps.push_back(lines.substr(at + 6, 2));
  EXPECT_EQ(steps, (std::vector<std::string>{" 1", "10", "20", "25"}));
  std::string text = *ReadFile(options.jsonl);
  EXPECT_EQ(std::ranges::count(text, '\n'), 25);
  EXPECT_EQ(err_.str(), "");
  EXPECT_NE(lines.find("\nloss\n"), std::string::npos);
}

TEST_F(LogTest, AFullDiskIsReportedOnceAndTrainingGoesOn) {
  TrainingLogOptions options{.steps = 3, .jsonl = "/dev/full"};
  Run(options, 1, 3);
  EXPECT_EQ(err_.str(),
            "training continues without this file: cannot write `/dev/full`: No space left on "
            "device [file-write]\n");
  EXPECT_NE(out_.str().find("step:  3"), std::string::npos);
}

TEST_F(LogTest, AFileThatCannotBeOpenedIsRefusedBefore) {
  auto log = TrainingLog::Open({.jsonl = Path("none/a.jsonl")}, out_, err_);
  ASSERT_FALSE(log.ok());
  EXPECT_EQ(log.diagnostics()[0].kind, Diag::kFileWrite);
  std::ofstream(Path("taken")) << "x";
  EXPECT_FALSE(TrainingLog::Open({.tensorboard = Path("taken")}, out_, err_).ok());
}

}  // namespace
}  // namespace heddle::run
