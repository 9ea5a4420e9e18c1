#include <cmath>

#include <gtest/gtest.h>

#include "heddle/models/init.h"
#include "heddle/train/schedule.h"
#include "heddle/train/session.h"

namespace heddle {
namespace {

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
  // Steps of four sequences in f64, in so many batches.
  static std::pair<Model, std::unique_ptr<Session>> Make(int64_t batches) {
    StepNumerics numerics{.compute = DType::kF64, .loss_divisor = LossDivisor::kGiven};
    Model model =
        *MakeModel(*FindModel("mlp", "small"), {.batch = 4 / batches, .seq_len = 4}, numerics);
    Module step =
        *CaptureModel(model, {.optimizer = OptimizerOptions(), .accumulate = batches > 1});
    Module first = *CaptureModel(model, CaptureOptions());
    Module more = *CaptureModel(model, {.accumulate = true});
    Module forward = *CaptureModel(model, {.forward_only = true});
    SessionOptions options;
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
};

// However a step is cut into batches, it is the same step.
TEST_F(AccumulationTest, GradientsOfBatchesAddUp) {
  auto [model, whole] = Make(1);
  for (int64_t batches : {2, 4}) {
    auto [same_model, parts] = Make(batches);
    auto [again, reference] = Make(1);
    for (int step = 0; step < 3; ++step) {
      ASSERT_TRUE(parts->Step(1e-3).ok() && reference->Step(1e-3).ok());
      EXPECT_NEAR(parts->loss(0).item<double>(), reference->loss(0).item<double>(), 1e-12);
      for (size_t p = 0; p < model.params.size(); ++p) {
        for (Held held : kAllHeld) {
          at::Tensor apart = parts->held(held, 0, p);
          EXPECT_TRUE(apart.allclose(reference->held(held, 0, p), 1e-9, 1e-12))
              << batches << " " << model.params[p].name << " " << Name(held);
        }
      }
    }
  }
}

// The mean loss of a step's rows does not depend on the number of batches they are split into.
TEST_F(AccumulationTest, ValidationLossIsTheMeanOfAllRows) {
  auto [model, whole] = Make(1);
  double expected = *whole->Evaluate(Batches(), 2);
  // Near the logarithm of the vocabulary, as the weights are random.
  EXPECT_NEAR(expected, std::log(64.0), 0.5);
  for (int64_t batches : {2, 4}) {
    auto [same_model, parts] = Make(batches);
    EXPECT_NEAR(*parts->Evaluate(Batches(), 2), expected, 1e-12) << batches;
    // A training step in between does not change the result.
    ASSERT_TRUE(parts->Step(0).ok());
    EXPECT_NEAR(*parts->Evaluate(Batches(), 2), expected, 1e-12) << batches;
  }
}

// TorchTitan's figures for 10 steps, 2 of warm-up, 4 of decay.
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
}  // namespace heddle
