#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "heddle/base/text.h"
#include "heddle/models/init.h"
#include "heddle/train/compare.h"
#include "heddle/train/hashes.h"
#include "heddle/train/schedule.h"
#include "heddle/train/session.h"
#include "heddle/train/sha256.h"

namespace heddle {
namespace {

TEST(Sha256, KnownAnswers) {
  EXPECT_EQ(Sha256("", 0), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(Sha256("abc", 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(HexFloat, IsExact) {
  EXPECT_EQ(HexFloat(0.75), "0x1.8p-1");
  EXPECT_EQ(HexFloat(-0.0), "-0x0p+0");
  EXPECT_EQ(HexFloat(-NAN), "nan");
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

class HashTest : public testing::Test {
 protected:
  Model model_ = *MakeModel(*FindModel("mlp", "small"), {.batch = 2, .seq_len = 4}, {});
  Module module_ = *CaptureModel(model_, OptimizerOptions());
  Session session_ = *Session::Make(
      model_, module_,
      {.world = {}, .params = InitialParams(model_, 1), .batches = SyntheticBatches(model_, 1)});
};

TEST_F(HashTest, AreThoseOfTheBytesThatARankHolds) {
  ASSERT_TRUE(session_.Step(1e-3).ok());
  std::string text = HashLines(session_, model_.params, /*gradients=*/true);
  std::vector<nlohmann::json> lines;
  for (std::string_view line : Split(Trim(text), '\n'))
    lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 1 + 2 * model_.params.size());
  EXPECT_EQ(lines[0]["loss"], HexFloat(session_.loss(0).item<double>()));
  at::Tensor first = session_.held(Held::kParam, 0, 0);
  EXPECT_EQ(
      lines[1].dump(),
      fmt::format(
          R"({{"name":"tok_embeddings.weight","rank":0,"sha256":"{}","shape":[64,32],"step":1}})",
          Sha256(first.data_ptr(), first.nbytes())));
  at::Tensor grad = session_.held(Held::kGrad, 0, 0);
  const nlohmann::json& last = lines[1 + model_.params.size()];
  EXPECT_EQ(last["name"], "tok_embeddings.weight.grad");
  EXPECT_EQ(last["sha256"], Sha256(grad.contiguous().data_ptr(), grad.nbytes()));
}

TEST_F(HashTest, ComparisonsCountBits) {
  Session other = *Session::Make(
      model_, module_,
      {.world = {}, .params = InitialParams(model_, 1), .batches = SyntheticBatches(model_, 1)});
  ASSERT_TRUE(session_.Step(1e-3).ok() && other.Step(1e-3).ok());
  EXPECT_EQ(Compare(session_, other, model_.params.size()).differing_bits, 0);
  other.held(Held::kParam, 0, 1).view({-1})[7].neg_();
  Comparison comparison = Compare(session_, other, model_.params.size());
  EXPECT_EQ(comparison.differing_bits, 1);
  EXPECT_EQ(comparison.first->param, 1u);
  EXPECT_EQ(comparison.first->held, Held::kParam);
  EXPECT_EQ(comparison.first->element, 7);
  EXPECT_EQ(comparison.first->differing_elements, 1);
  EXPECT_EQ("-" + comparison.first->first.substr(0, 4), comparison.first->second.substr(0, 5));
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
    return {model, std::make_unique<Session>(
                       *Session::Make(model, {.step = &step, .first = &first, .more = &more},
                                      {.world = {},
                                       .params = InitialParams(model, 1),
                                       .batches = Batches(),
                                       .accumulated = batches}))};
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

TEST_F(HashTest, AStepCanBeUndone) {
  ASSERT_TRUE(session_.Step(1e-3).ok());
  std::string before = HashLines(session_, model_.params, /*gradients=*/false);
  session_.Remember();
  at::Tensor moment = session_.held(Held::kExpAvg, 0, 0).clone();
  ASSERT_TRUE(session_.Step(1e-3).ok());
  EXPECT_FALSE(moment.equal(session_.held(Held::kExpAvg, 0, 0)));
  session_.UndoStep();
  EXPECT_TRUE(moment.equal(session_.held(Held::kExpAvg, 0, 0)));
  std::string after = HashLines(session_, model_.params, /*gradients=*/false);
  // Of the same weights, behind another step.
  auto weights = [](const std::string& lines) {
    std::vector<std::string> hashes;
    for (std::string_view line : Split(Trim(lines), '\n')) {
      nlohmann::json json = nlohmann::json::parse(line);
      if (json.contains("sha256")) hashes.push_back(json["sha256"]);
    }
    return hashes;
  };
  EXPECT_EQ(weights(before), weights(after));
  EXPECT_EQ(session_.steps(), 2);
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
