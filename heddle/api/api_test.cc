#include <gtest/gtest.h>

#include "heddle/api/train.h"
#include "heddle/api/verify.h"
#include "heddle/core/base/file.h"

namespace heddle {
namespace {

// A small decoder on two ranks that shard its parameters.
template <typename Options>
Options Small(int64_t steps) {
  Options options;
  options.model.seq_len = 16;
  options.model.sizes = {{"n_layers", 1},   {"dim", 32},     {"n_heads", 2},
                         {"n_kv_heads", 2}, {"ffn_dim", 48}, {"vocab_size", 64}};
  options.parallel.degrees[1] = 2;
  options.optimization.steps = steps;
  options.loop.dataset = "synthetic";
  return options;
}

class Recorder final : public TrainObserver {
 public:
  void Note(const std::string& line) override { notes.push_back(line); }
  void Prepared(const TrainingJob& job) override { ranks = job.ranks(); }
  Status Begins(int64_t step) override {
    after = step;
    return Done{};
  }
  void Trained(const run::StepMetrics& metrics) override { losses.push_back(metrics.loss); }

  std::vector<std::string> notes;
  std::vector<double> losses;
  int64_t ranks = 0;
  int64_t after = -1;
};

TEST(Api, TrainsAndResumes) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  TempDir folder;
  Recorder whole;
  ASSERT_TRUE(api::Train(Small<TrainOptions>(4), whole).ok());
  EXPECT_EQ(whole.ranks, 2);
  EXPECT_EQ(whole.after, 0);
  std::vector<double> losses;
  for (int64_t steps : {2, 4}) {
    TrainOptions options = Small<TrainOptions>(steps);
    options.loop.folder = folder.path() + "/run";
    Recorder part;
    Result<TrainResult> result = api::Train(options, part);
    ASSERT_TRUE(result.ok()) << Format(result.diagnostics());
    EXPECT_TRUE(result->ok());
    EXPECT_EQ(result->step, steps);
    EXPECT_EQ(part.after, steps - 2);
    losses.insert(losses.end(), part.losses.begin(), part.losses.end());
  }
  EXPECT_EQ(losses, whole.losses);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(Api, TrainRefusesOptions) {
  TrainOptions options = Small<TrainOptions>(1);
  options.loop.async = "no";
  Recorder recorder;
  Result<TrainResult> result = api::Train(options, recorder);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.diagnostics()[0].message,
            "--checkpoint.async is `no`; it is one of true, false");
}

TEST(Api, VerifiesAgainstEager) {
  testing::internal::CaptureStdout();
  VerifyObserver silent;
  Result<run::VerifyReport> report = api::Verify(Small<VerificationOptions>(2), silent);
  ASSERT_TRUE(report.ok()) << Format(report.diagnostics());
  EXPECT_FALSE(report->differs());
  EXPECT_EQ(report->rows.size(), 2u);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(Api, AxesThatSplitTheBatch) {
  EXPECT_EQ(BatchRanks(Mesh({{"dp_replicate", 2}, {"dp_mod_ep", 3}, {"dp_in_ep", 5}, {"tp", 7}})),
            30);
  EXPECT_EQ(BatchRanks(Mesh({{"tp", 7}})), 1);
  // Names without a meaning.
  EXPECT_EQ(BatchRanks(Mesh({{"dp_other", 2}, {"x_in_ep", 3}})), 6);
}

}  // namespace
}  // namespace heddle
