#include <gtest/gtest.h>

#include "heddle/api/plan.h"
#include "heddle/api/simulate.h"
#include "heddle/api/train.h"
#include "heddle/api/verification.h"
#include "heddle/core/base/file.h"

namespace heddle {
namespace {

// A small decoder on two ranks with sharded parameters.
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
  options.loop.load_step = 3;
  Recorder recorder;
  Result<TrainResult> result = api::Train(options, recorder);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.diagnostics()[0].message, "--checkpoint.load_step requires --checkpoint.folder");
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

PlanOptions SmallPlan() {
  TrainOptions small = Small<TrainOptions>(1);
  return {.model = small.model, .parallel = small.parallel};
}

TEST(Api, Plans) {
  testing::internal::CaptureStdout();
  PlanOptions options = SmallPlan();
  options.print = compile::Stage::kFinal;
  Result<PlanResult> result = api::Plan(options);
  ASSERT_TRUE(result.ok()) << Format(result.diagnostics());
  EXPECT_EQ(result->summary.ranks, 2);
  EXPECT_TRUE(result->summary.has_optimizer);
  EXPECT_GT(result->summary.peak_bytes, result->summary.param_bytes);
  EXPECT_EQ(result->device, "cuda") << "that of the default cluster";
  EXPECT_FALSE(result->report.text.empty());
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(Api, PlanRefusesAMeshWithoutAuto) {
  PlanOptions options = SmallPlan();
  options.mesh = "dp=2";
  Result<PlanResult> result = api::Plan(options);
  ASSERT_FALSE(result.ok());
  EXPECT_TRUE(result.diagnostics()[0].message.starts_with("--mesh needs --parallelism.auto"));
}

// Planning must report the peak of the simulated step.
TEST(Api, SimulatesTheStepThatIsPlanned) {
  testing::internal::CaptureStdout();
  SimulationOptions options;
  options.plan = SmallPlan();
  Result<SimulationResult> result = api::Simulate(options);
  ASSERT_TRUE(result.ok()) << Format(result.diagnostics());
  ASSERT_EQ(result->modules.size(), 2u);
  EXPECT_EQ(result->modules[0].name, "none");
  EXPECT_EQ(result->modules[1].name, "fsdp");
  EXPECT_EQ(result->step().timeline.peak, result->plan.summary.peak_bytes);
  EXPECT_GT(result->step().timeline.makespan, Nanos{});
  options.against = "fsdp";
  Result<SimulationResult> alone = api::Simulate(options);
  ASSERT_TRUE(alone.ok()) << Format(alone.diagnostics());
  ASSERT_EQ(alone->modules.size(), 1u);
  EXPECT_EQ(alone->step().timeline.makespan, result->step().timeline.makespan);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
}

TEST(Api, BalancesStages) {
  PlanOptions options;
  options.model.sizes = {{"n_layers", 6}, {"vocab_size", 32000}};
  options.model.seq_len = 2048;
  options.model.local_batch_size = 4;
  options.parallel.pipeline.degree = 2;
  Result<PlannedStep> balanced = CapturePlanned(options);
  ASSERT_TRUE(balanced.ok()) << Format(balanced.diagnostics());
  // The output over a large vocabulary takes longer than some layers.
  EXPECT_GT(balanced->plan.decisions.stages->first_positions[1], 4);
  options.parallel.pipeline.last_less_layers = 1;
  Result<PlannedStep> by_number = CapturePlanned(options);
  ASSERT_TRUE(by_number.ok()) << Format(by_number.diagnostics());
  EXPECT_EQ(by_number->plan.decisions.stages->first_positions, (std::vector<int64_t>{0, 4}));
}

// All coordinates are simulated together.
TEST(Api, SimulatesPipelines) {
  SimulationOptions options;
  options.plan.model.sizes = {{"n_layers", 6}, {"vocab_size", 32000}};
  options.plan.model.seq_len = 2048;
  options.plan.model.local_batch_size = 4;
  options.plan.parallel.pipeline.degree = 2;
  options.plan.parallel.degrees[1] = 2;
  options.against = "fsdp";
  Result<SimulationResult> simulated = api::Simulate(options);
  ASSERT_TRUE(simulated.ok()) << Format(simulated.diagnostics());
  const search::SimulatedModule& module = simulated->modules.back();
  ASSERT_EQ(module.simulations.size(), 2u);
  ASSERT_TRUE(module.pipeline);
  const price::PipelineSimulation& pipeline = *module.pipeline;
  EXPECT_EQ(pipeline.schedule, "1F1B");
  EXPECT_EQ(pipeline.stages, 2);
  EXPECT_EQ(pipeline.micro_batches, 4);
  EXPECT_LE(pipeline.bound, pipeline.step);
  EXPECT_GT(pipeline.bound.value, 0);
  // Four forwards, and as many backwards.
  for (const price::CoordinateTimes& c : pipeline.coordinates) {
    EXPECT_EQ(c.actions.size(), 8u);
    EXPECT_EQ(c.busy + c.bubble + c.hop, pipeline.step);
  }
  EXPECT_EQ(module.simulations[0].tokens, 4 * 2048 * 2);
}

TEST(Api, AxesThatSplitTheBatch) {
  EXPECT_EQ(BatchRanks(Mesh({{"dp_replicate", 2}, {"dp_mod_ep", 3}, {"dp_in_ep", 5}, {"tp", 7}})),
            30);
  EXPECT_EQ(BatchRanks(Mesh({{"tp", 7}})), 1);
  // These names do not give the axes a role.
  EXPECT_EQ(BatchRanks(Mesh({{"dp_other", 2}, {"x_in_ep", 3}})), 6);
}

}  // namespace
}  // namespace heddle
