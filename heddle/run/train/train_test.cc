#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>

#include <ATen/ops/full.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "heddle/run/models/init.h"
#include "heddle/run/train/batches_ahead.h"
#include "heddle/run/train/schedule.h"
#include "heddle/run/train/session.h"
#include "heddle/run/train/step_profile.h"
#include "heddle/run/train/trainer.h"

namespace heddle::run {
namespace {

TEST(Batches, PositionsOfDocumentsStartOver) {
  auto rows = [](const std::vector<int64_t>& numbers) {
    return at::tensor(numbers, at::kLong).view({2, 4});
  };
  EXPECT_TRUE(DocumentPositions(rows({0, 1, 0, 0, 1, 1, 0, 0}).to(at::kBool))
                  .equal(rows({0, 1, 0, 1, 0, 0, 0, 1})));
}

// splitmix64 of 42 * 2^40 + 3 * 2^32 + 5 * 2^16 + position, modulo 1000.
TEST(Batches, AreAFunctionOfSeedStepRowAndPosition) {
  Batch batch = MakeBatch(1000, 1, 3, 42, 3, 5);
  std::vector<int64_t> tokens(batch.tokens.data_ptr<int64_t>(),
                              batch.tokens.data_ptr<int64_t>() + 3);
  EXPECT_EQ(tokens, (std::vector<int64_t>{191, 490, 744}));
  EXPECT_EQ(batch.labels[0][0].item<int64_t>(), tokens[1]);
  // Rows count over the whole batch.
  EXPECT_TRUE(MakeBatch(1000, 8, 3, 42, 3).tokens[5].equal(batch.tokens[0]));
}

class AccumulationTest : public testing::Test {
 protected:
  // Makes a session for steps of four sequences in f64, in `batches` micro-batches.
  std::pair<Model, std::unique_ptr<Session>> Make(int64_t batches, DType compute = DType::kF64,
                                                  SessionOptions options = {}) const {
    StepNumerics numerics{.compute = compute, .loss_divisor = LossDivisor::kGiven};
    Model model =
        *MakeModel(*FindModel("mlp", "small"), {.batch = 4 / batches, .seq_len = 4}, numerics);
    Module step = *CaptureModel(model, {.lr_on_device = compute == DType::kF32,
                                        .optimizer = optimizer_,
                                        .accumulate = batches > 1});
    Module first = *CaptureModel(model, CaptureOptions());
    Module more = *CaptureModel(model, {.accumulate = true});
    Module forward = *CaptureModel(model, {.forward_only = true});
    options.params = InitialParams(model, 1);
    options.batches = Batches();
    options.accumulated = batches;
    Result<Session> session = Session::Make(
        model, {.step = &step, .first = &first, .more = &more, .forward = &forward}, options);
    return {model, std::make_unique<Session>(*std::move(session))};
  }
  // The second sequence has one label that counts.
  static BatchSource Batches() {
    return [](int64_t step, int64_t first_row, int64_t rows) -> Result<Batch> {
      Batch batch = MakeBatch(64, rows, 4, 1, step, first_row);
      if (first_row <= 1 && first_row + rows > 1)
        batch.labels[1 - first_row].slice(0, 1).fill_(kIgnoredLabel);
      return batch;
    };
  }

  OptimizerOptions optimizer_;
};

// The number of micro-batches does not change the step.
TEST_F(AccumulationTest, GradientsOfBatchesAddUp) {
  auto [model, whole] = Make(1);
  for (int64_t batches : {2, 4}) {
    auto [same_model, parts] = Make(batches);
    auto [again, reference] = Make(1);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(parts->Step(1e-3).ok() && reference->Step(1e-3).ok());
      EXPECT_NEAR(parts->loss(0).item<double>(), reference->loss(0).item<double>(), 1e-12);
      for (size_t p = 0; p < model.params.size(); ++p) {
        for (StateKind kind : kStateKinds) {
          at::Tensor apart = parts->state(kind, 0, p);
          if (!apart.defined()) continue;
          EXPECT_TRUE(apart.allclose(reference->state(kind, 0, p), 1e-9, 1e-12))
              << batches << " " << model.params[p].name << " " << Name(kind);
        }
      }
    }
  }
}

// The mean loss of a step's rows does not depend on the number of micro-batches.
TEST_F(AccumulationTest, ValidationLossIsTheMeanOfAllRows) {
  auto [model, whole] = Make(1);
  double expected = *whole->Evaluate(Batches(), 2);
  // Near the logarithm of the vocabulary, because the weights are random.
  EXPECT_NEAR(expected, std::log(64.0), 0.5);
  for (int64_t batches : {2, 4}) {
    auto [same_model, parts] = Make(batches);
    EXPECT_NEAR(*parts->Evaluate(Batches(), 2), expected, 1e-12) << batches;
    // A training step in between does not change the result.
    ASSERT_TRUE(parts->Step(0).ok());
    EXPECT_NEAR(*parts->Evaluate(Batches(), 2), expected, 1e-12) << batches;
  }
}

// Simulates a GPU's recorder on a CPU: recording computes nothing, and a replay overwrites the
// recorded tensors.
class FakeRecorder : public RunRecorder {
 public:
  struct Counts {
    int runs = 0;
    int records = 0;
    int replays = 0;
  };
  explicit FakeRecorder(Counts& counts) : counts_(counts) {}

  Result<std::vector<Tensors>> Run(const RankProgram& program,
                                   std::span<const Tensors> inputs) override {
    ++counts_.runs;
    return program.Run(inputs);
  }
  Result<std::unique_ptr<RecordedRun>> Record(const RankProgram& program,
                                              std::span<const Tensors> inputs) override {
    ++counts_.records;
    Tensors before;
    for (const at::Tensor& input : inputs[0]) before.push_back(input.clone());
    HEDDLE_TRY(std::vector<Tensors> outputs, program.Run(inputs));
    for (size_t i = 0; i < before.size(); ++i) inputs[0][i].copy_(before[i]);
    return std::unique_ptr<RecordedRun>(std::make_unique<Recorded>(
        counts_, program, std::vector<Tensors>(inputs.begin(), inputs.end()), std::move(outputs)));
  }

 private:
  class Recorded : public RecordedRun {
   public:
    Recorded(Counts& counts, const RankProgram& program, std::vector<Tensors> inputs,
             std::vector<Tensors> outputs)
        : counts_(counts),
          program_(program),
          inputs_(std::move(inputs)),
          outputs_(std::move(outputs)) {}
    Status Replay() override {
      ++counts_.replays;
      HEDDLE_TRY(std::vector<Tensors> again, program_.Run(inputs_));
      for (size_t i = 0; i < again[0].size(); ++i) outputs_[0][i].copy_(again[0][i]);
      return Done{};
    }
    const std::vector<Tensors>& outputs() const override { return outputs_; }

   private:
    Counts& counts_;
    const RankProgram& program_;
    std::vector<Tensors> inputs_;
    std::vector<Tensors> outputs_;
  };

  Counts& counts_;
};

// Batches, learning rates, step numbers, accumulated gradients, validation and rollbacks must reach
// a recorded step.
TEST_F(AccumulationTest, RecordedStepsHaveTheSameBits) {
  optimizer_.momentum = 0.9;
  for (auto [batches, name] : {std::pair(1, OptimizerName::kAdamW),
                               {2, OptimizerName::kAdamW},
                               {4, OptimizerName::kAdamW},
                               {1, OptimizerName::kSgd},
                               {2, OptimizerName::kMuon}}) {
    optimizer_.name = name;
    FakeRecorder::Counts counts;
    SessionOptions options;
    options.recorder = [&]() -> Result<std::unique_ptr<RunRecorder>> {
      return std::unique_ptr<RunRecorder>(std::make_unique<FakeRecorder>(counts));
    };
    options.notice = [](const std::string& line) { ADD_FAILURE() << line; };
    auto [model, recorded] = Make(batches, DType::kF32, options);
    auto [same_model, launched] = Make(batches, DType::kF32);
    for (int step = 1; step <= 6; ++step) {
      for (Session* session : {recorded.get(), launched.get()}) {
        if (step == 4) session->Remember();
        ASSERT_TRUE(session->Step(1e-2 / step).ok());
      }
      EXPECT_EQ(recorded->loss(0).item<float>(), launched->loss(0).item<float>()) << step;
      EXPECT_EQ(recorded->grad_norm(0).item<float>(), launched->grad_norm(0).item<float>());
      for (size_t p = 0; p < model.params.size(); ++p) {
        for (StateKind kind : kStateKinds) {
          at::Tensor state = recorded->state(kind, 0, p);
          if (!state.defined()) continue;
          EXPECT_TRUE(state.equal(launched->state(kind, 0, p)))
              << Name(name) << ", " << batches << " batches, step " << step << ", "
              << model.params[p].name << " " << Name(kind);
        }
      }
      EXPECT_EQ(*recorded->Evaluate(Batches(), step), *launched->Evaluate(Batches(), step));
      for (Session* session : {recorded.get(), launched.get()}) {
        if (step == 4) session->UndoStep();
      }
    }
    // Two steps warm up, and two evaluations of a batch.
    int graphs = batches == 1 ? 1 : batches == 2 ? 2 : 3;
    EXPECT_EQ(counts.records, graphs + 1);
    EXPECT_EQ(counts.runs, 2 * batches + 2);
    EXPECT_EQ(counts.replays, 4 * batches + 6 * batches - 2);
  }
}

// The loop starts steps before it knows the loss of the last one, except where something needs the
// state in between.
TEST_F(AccumulationTest, RunningAheadChangesNothing) {
  std::vector<std::vector<double>> rows(2);
  std::vector<std::vector<int64_t>> saved(2);
  std::vector<at::Tensor> params;
  std::vector<int64_t> ahead;
  FakeRecorder::Counts counts;
  for (bool runs_ahead : {false, true}) {
    SessionOptions options;
    options.recorder = [&]() -> Result<std::unique_ptr<RunRecorder>> {
      return std::unique_ptr<RunRecorder>(std::make_unique<FakeRecorder>(counts));
    };
    auto [model, session] = Make(1, DType::kF32, options);
    TrainerOptions trainer;
    trainer.steps = 20;
    trainer.lr = [](int64_t step) { return 1e-2 / static_cast<double>(step); };
    trainer.validation_interval = 6;
    trainer.validation_steps = 1;
    trainer.validation_batches = Batches();
    trainer.save_interval = 5;
    trainer.save = [&](const GraphRun& s) -> Status {
      saved[runs_ahead].push_back(s.steps());
      return Done{};
    };
    trainer.runs_ahead = [&](int64_t step) { return runs_ahead && step != 9; };
    trainer.on_step = [&](const GraphRun& s, const TrainedStep& row) -> Status {
      for (double value : {row.loss, *row.grad_norm, row.validation_loss.value_or(0)})
        rows[runs_ahead].push_back(value);
      if (s.steps() > row.step) ahead.push_back(row.step);
      return Done{};
    };
    // Asked to stop after step 13, when step 14 has started.
    trainer.stop = [](int64_t step) -> Result<bool> { return step == 13; };
    Result<TrainingOutcome> outcome = Train(*session, trainer);
    ASSERT_TRUE(outcome.ok());
    EXPECT_EQ(outcome->end, TrainingEnd::kStopped);
    EXPECT_EQ(outcome->last.step, runs_ahead ? 14 : 13);
    ASSERT_TRUE(runs_ahead || session->Step(trainer.lr(14)).ok());
    params.push_back(session->state(StateKind::kParam, 0, 0));
  }
  // Step 3 is recorded; steps 5, 6, 9, 10 and 12 are saved, validated or looked at.
  EXPECT_EQ(ahead, (std::vector<int64_t>{3, 4, 7, 8, 11, 13}));
  EXPECT_EQ(saved[0], (std::vector<int64_t>{5, 10, 13}));
  EXPECT_EQ(saved[1], (std::vector<int64_t>{5, 10, 14}));
  rows[1].resize(rows[0].size());
  EXPECT_EQ(rows[0], rows[1]);
  EXPECT_TRUE(params[0].equal(params[1]));
}

TEST_F(AccumulationTest, AStepThatCannotBeRecordedRunsAndSaysWhy) {
  FakeRecorder::Counts counts;
  std::vector<std::string> notices;
  SessionOptions options;
  options.recorder = [&]() -> Result<std::unique_ptr<RunRecorder>> {
    return std::unique_ptr<RunRecorder>(std::make_unique<FakeRecorder>(counts));
  };
  options.notice = [&](const std::string& line) { notices.push_back(line); };
  // In f64 the fused kernel reads the learning rate from the host.
  auto [model, recorded] = Make(1, DType::kF64, options);
  auto [same_model, launched] = Make(1, DType::kF64);
  for (int step = 1; step <= 4; ++step) {
    ASSERT_TRUE(recorded->Step(1e-2 / step).ok() && launched->Step(1e-2 / step).ok());
    EXPECT_TRUE(
        recorded->state(StateKind::kParam, 0, 0).equal(launched->state(StateKind::kParam, 0, 0)));
  }
  EXPECT_EQ(counts.records, 0);
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_TRUE(notices[0].starts_with("@step runs as launches, not as a CUDA graph: node "));
  EXPECT_NE(notices[0].find("it reads a number from the host"), std::string::npos) << notices[0];
  EXPECT_NE(notices[0].find("_fused_adamw"), std::string::npos) << notices[0];
}

TEST_F(AccumulationTest, AMachineThatCannotRecordSaysSoOnce) {
  std::vector<std::string> notices;
  SessionOptions options;
  options.recorder = []() -> Result<std::unique_ptr<RunRecorder>> {
    return Error(Diag::kEnvironment, "no GPU: none is here");
  };
  options.notice = [&](const std::string& line) { notices.push_back(line); };
  auto [model, session] = Make(2, DType::kF32, options);
  for (int step = 1; step <= 4; ++step) ASSERT_TRUE(session->Step(1e-2).ok());
  EXPECT_EQ(notices, std::vector<std::string>{"steps run as launches: no GPU: none is here"});
}

// TorchTitan's numbers for 10 steps with 2 of warm-up and 4 of decay.
TEST(BatchesAhead, GivesWhatTheSourceGives) {
  std::vector<std::array<int64_t, 3>> made;
  bool fails = false;
  BatchesAhead ahead([&](int64_t step, int64_t first, int64_t rows) -> Result<Batch> {
    made.push_back({step, first, rows});
    if (fails) return Error(Diag::kEnvironment, "the data of step {} are gone", step);
    return Batch{at::full({rows}, 100 * step + first, at::kLong), at::zeros({rows}, at::kLong)};
  });
  auto first_of = [&](int64_t step, int64_t first) {
    return ahead.Get(step, first, 2)->tokens[0].item<int64_t>();
  };
  EXPECT_EQ(first_of(1, 0), 100);
  EXPECT_EQ(first_of(1, 2), 102);
  ahead.Fetch(2);
  EXPECT_EQ(made.size(), 4u);
  // Both rows of step 2 are loaded; another step, and other rows, are read from the source.
  EXPECT_EQ(first_of(2, 0), 200);
  EXPECT_EQ(first_of(2, 2), 202);
  EXPECT_EQ(made.size(), 4u);
  EXPECT_EQ(first_of(2, 4), 204);
  EXPECT_EQ(first_of(7, 0), 700);
  EXPECT_EQ(made.size(), 6u);
  // The step that needs the data reports the failure.
  fails = true;
  ahead.Fetch(8);
  EXPECT_FALSE(ahead.Get(8, 0, 2).ok());
}

TEST(ProfiledSteps, AreACountOrAStartAndACount) {
  EXPECT_EQ(ParseProfiledSteps("3")->count, 3);
  EXPECT_GT(ParseProfiledSteps("3")->first, 3);
  EXPECT_EQ(ParseProfiledSteps("10:2")->first, 10);
  EXPECT_EQ(ParseProfiledSteps("10:2")->count, 2);
  for (std::string_view wrong : {"", "0", "-1", "x", "1:", ":1", "0:1", "1:0", "1:2:3", "1.5"})
    EXPECT_FALSE(ParseProfiledSteps(wrong).ok()) << wrong;
}

TEST(StepProfile, WritesTheStepsItWasAskedFor) {
  std::string folder = testing::TempDir() + "heddle_profile";
  StepProfile profile({2, 1}, folder, at::kCPU);
  profile.SetRank({.rank = 1, .world_size = 4, .run = "a", .held = Bytes{100}});
  ASSERT_TRUE(profile.After(0).ok());
  ASSERT_TRUE(profile.After(1).ok());
  at::Tensor sum = at::zeros({4}).add(1);
  ASSERT_TRUE(profile.After(2).ok());
  std::ifstream trace(profile.path());
  std::string text((std::istreambuf_iterator<char>(trace)), {});
  EXPECT_NE(text.find("aten::add"), std::string::npos) << profile.path();
  EXPECT_TRUE(profile.path().ends_with("/steps_2-2_rank_1.json"));
  for (std::string_view part : {"ProfilerStep#2", R"("rank": 1, "world_size": 4)", R"("run": "a")",
                                R"("held_bytes": 100)", "[memory]"})
    EXPECT_NE(text.find(part), std::string::npos) << part;
  EXPECT_FALSE(std::filesystem::exists(profile.path() + ".partial"));
  // A run that ends early writes the steps that it had.
  StepProfile open({1, 100}, folder, at::kCPU);
  ASSERT_TRUE(open.After(0).ok());
  ASSERT_TRUE(open.After(3, /*last=*/true).ok());
  EXPECT_NE(open.path().find("steps_1-3"), std::string::npos);
}

TEST(Schedule, RisesStaysAndFalls) {
  ScheduleOptions options{.steps = 10, .lr = 8, .warmup_steps = 2, .decay = Decay::kLinear};
  options.decay_ratio = 0.4;
  Schedule linear = *Schedule::Make(options);
  std::vector<double> rates;
  for (int64_t step = 1; step <= 10; ++step) rates.push_back(linear.At(step));
  EXPECT_EQ(rates, (std::vector<double>{4, 8, 8, 8, 8, 8, 8, 6, 4, 2}));
  options.decay = Decay::kSqrt;
  EXPECT_DOUBLE_EQ(Schedule::Make(options)->At(8), 4);
  options.decay = Decay::kCosine;
  options.min_lr_factor = 0.5;
  EXPECT_DOUBLE_EQ(Schedule::Make(options)->At(9), 6);
  options.decay = Decay::kNone;
  EXPECT_DOUBLE_EQ(Schedule::Make(options)->At(10), 8);
  options.decay_ratio = 1.5;
  EXPECT_FALSE(Schedule::Make(options).ok());
}

}  // namespace
}  // namespace heddle::run
