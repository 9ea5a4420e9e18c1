#include "heddle/run/verify/verify.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "heddle/core/base/text.h"
#include "heddle/run/models/init.h"
#include "heddle/run/verify/hashes.h"
#include "heddle/run/verify/sha256.h"

namespace heddle::run {
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

class HashTest : public testing::Test {
 protected:
  Model model_ = *MakeModel(*FindModel("mlp", "small"), {.batch = 2, .seq_len = 4}, {});
  Module module_ = *CaptureModel(model_, OptimizerOptions());
  Session session_ = *Session::Make(
      model_, module_,
      {.program = {}, .params = InitialParams(model_, 1), .batches = SyntheticBatches(model_, 1)});
};

TEST_F(HashTest, AreThoseOfTheBytesThatARankHolds) {
  ASSERT_TRUE(session_.Step(1e-3).ok());
  std::string text = HashLines(session_, model_.params, /*gradients=*/true);
  std::vector<nlohmann::json> lines;
  for (std::string_view line : Split(Trim(text), '\n'))
    lines.push_back(nlohmann::json::parse(line));
  ASSERT_EQ(lines.size(), 1 + 2 * model_.params.size());
  EXPECT_EQ(lines[0]["loss"], HexFloat(session_.loss(0).item<double>()));
  at::Tensor first = session_.state(StateKind::kParam, 0, 0);
  EXPECT_EQ(
      lines[1].dump(),
      fmt::format(
          R"({{"name":"tok_embeddings.weight","rank":0,"sha256":"{}","shape":[64,32],"step":1}})",
          Sha256(first.data_ptr(), first.nbytes())));
  at::Tensor grad = session_.state(StateKind::kGrad, 0, 0);
  const nlohmann::json& last = lines[1 + model_.params.size()];
  EXPECT_EQ(last["name"], "tok_embeddings.weight.grad");
  EXPECT_EQ(last["sha256"], Sha256(grad.contiguous().data_ptr(), grad.nbytes()));
}

TEST_F(HashTest, ComparisonsCountBits) {
  Session other = *Session::Make(
      model_, module_,
      {.program = {}, .params = InitialParams(model_, 1), .batches = SyntheticBatches(model_, 1)});
  ASSERT_TRUE(session_.Step(1e-3).ok() && other.Step(1e-3).ok());
  EXPECT_EQ(Compare(session_, other, model_.params.size()).differing_bits, 0);
  other.state(StateKind::kParam, 0, 1).view({-1})[7].neg_();
  Comparison comparison = Compare(session_, other, model_.params.size());
  EXPECT_EQ(comparison.differing_bits, 1);
  EXPECT_EQ(comparison.first->param, 1u);
  EXPECT_EQ(comparison.first->kind, StateKind::kParam);
  EXPECT_EQ(comparison.first->element, 7);
  EXPECT_EQ(comparison.first->differing_elements, 1);
  EXPECT_EQ("-" + comparison.first->first.substr(0, 4), comparison.first->second.substr(0, 5));
}

TEST_F(HashTest, AStepCanBeUndone) {
  ASSERT_TRUE(session_.Step(1e-3).ok());
  std::string before = HashLines(session_, model_.params, /*gradients=*/false);
  session_.Remember();
  at::Tensor moment = session_.state(StateKind::kExpAvg, 0, 0).clone();
  ASSERT_TRUE(session_.Step(1e-3).ok());
  EXPECT_FALSE(moment.equal(session_.state(StateKind::kExpAvg, 0, 0)));
  session_.UndoStep();
  EXPECT_TRUE(moment.equal(session_.state(StateKind::kExpAvg, 0, 0)));
  std::string after = HashLines(session_, model_.params, /*gradients=*/false);
  // Hashes of the same weights, after another step.
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

}  // namespace
}  // namespace heddle::run
