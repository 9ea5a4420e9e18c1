#include "heddle/run/train/generate.h"

#include <set>

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>
#include <gtest/gtest.h>

#include "heddle/run/models/test/inputs.h"
#include "heddle/run/train/stop_text.h"
#include "test/checks/narrow_model.h"

namespace heddle::run {
namespace {

constexpr int64_t kLength = 20;

struct Case {
  const Family* family;
  std::string flavor;
  AttentionKind attention;
  int64_t window = 0;
};

std::vector<Case> Cases() {
  std::vector<Case> cases;
  for (const Family* family : Families()) {
    for (const ModelConfig& config : family->flavors()) {
      if (!config.flavor.starts_with("debugmodel") && config.flavor != "small") continue;
      cases.push_back({family, config.flavor, AttentionKind::kFastest});
      if (family->attention != nullptr)
        cases.push_back({family, config.flavor, AttentionKind::kMath});
    }
  }
  cases.push_back({FindModel("mistral", "debugmodel")->family, "debugmodel",
                   AttentionKind::kFastest, /*window=*/5});
  return cases;
}

class GenerateTest : public testing::TestWithParam<Case> {
 protected:
  GenerateTest() {
    ModelConfig config = *FindModel(GetParam().family->name, GetParam().flavor);
    if (config.family->attention != nullptr) MakeNarrow(config);
    model_ =
        *MakeModel(config, {.batch = 1, .seq_len = kLength}, {.attention = GetParam().attention});
    params_ = InitParams(model_, 7);
    inputs_ = MakeInputs(model_, 7, 1);
  }
  std::vector<int64_t> Prompt(int64_t tokens) const {
    Batch batch = MakeBatch(model_.config.vocab_size, 1, tokens, 5, 1);
    const auto* first = batch.tokens.const_data_ptr<int64_t>();
    return {first, first + tokens};
  }
  // Returns the logits of the last token, by a forward of the whole sequence.
  at::Tensor FullLogits(std::span<const int64_t> tokens) {
    auto known = std::min(kLength, static_cast<int64_t>(tokens.size()));
    at::Tensor sequence = at::zeros({1, kLength}, at::kLong);
    sequence[0].slice(0, 0, known).copy_(at::tensor(tokens.last(known), at::kLong));
    inputs_[inputs_.size() - 2] = sequence;
    return model_.logits(params_, inputs_)[0][known - 1];
  }
  std::vector<int64_t> FullGenerate(std::vector<int64_t> tokens, const GenerateOptions& options) {
    size_t before = tokens.size();
    for (int64_t i = 0; i < options.tokens; ++i)
      tokens.push_back(DrawToken(FullLogits(tokens), options, i));
    return {tokens.begin() + static_cast<int64_t>(before), tokens.end()};
  }

  at::NoGradGuard no_grad_;
  Model model_;
  std::vector<at::Tensor> params_;
  std::vector<at::Tensor> inputs_;
};

// Also without room for the next token, and with a prompt that has no room.
TEST_P(GenerateTest, TheCacheGivesTheTokensOfTheFullForward) {
  ParamSource source = [&](size_t param) -> Result<at::Tensor> { return params_[param]; };
  for (GenerateOptions options : {GenerateOptions{},
                                  {.temperature = 1, .seed = 3},
                                  {.temperature = 2, .top_k = 40, .seed = 4},
                                  {.temperature = 0.7, .top_k = 100, .top_p = 0.8, .seed = 5}}) {
    for (int64_t tokens : {int64_t{1}, int64_t{6}, kLength, kLength + 4}) {
      options.tokens = tokens == 6 ? kLength : 6;
      Result<std::vector<int64_t>> made = Generate(model_, source, Prompt(tokens), options);
      ASSERT_TRUE(made.ok());
      EXPECT_EQ(*made, FullGenerate(Prompt(tokens), options)) << tokens << " tokens";
    }
  }
}

TEST_P(GenerateTest, TheCacheGivesTheLogitsOfTheFullForward) {
  std::vector<int64_t> tokens = Prompt(kLength);
  std::vector<at::Tensor> inputs = inputs_;
  AttentionCache cache(kLength);
  for (int64_t known : {int64_t{4}, int64_t{5}, int64_t{6}, int64_t{7}}) {
    std::span<const int64_t> next(tokens.data() + cache.size(), tokens.data() + known);
    inputs[inputs.size() - 2] = at::tensor(next, at::kLong).unsqueeze(0);
    at::Tensor logits = model_.next_logits(params_, inputs, cache)[0][0];
    at::Tensor expected = FullLogits(std::span(tokens).first(known));
    EXPECT_TRUE(logits.allclose(expected, 1e-4, 1e-5)) << known << " tokens";
  }
}

INSTANTIATE_TEST_SUITE_P(Models, GenerateTest, testing::ValuesIn(Cases()), [](const auto& info) {
  return fmt::format("{}_{}_{}_window{}", info.param.family->name, info.param.flavor,
                     Name(info.param.attention), info.param.window);
});

int64_t Draw(std::vector<double> probabilities, GenerateOptions options, uint64_t number) {
  return DrawToken(at::tensor(probabilities).log(), options, number);
}

TEST(DrawToken, KeepsTheLikeliest) {
  std::vector<double> probabilities = {0.1, 0.4, 0.2, 0.3};
  EXPECT_EQ(Draw(probabilities, {}, 0), 1);
  EXPECT_EQ(Draw({0.25, 0.25, 0.25, 0.25}, {}, 0), 0);
  struct Expected {
    GenerateOptions options;
    std::set<int64_t> drawn;
  };
  for (const Expected& each :
       std::vector<Expected>{{{.temperature = 1}, {0, 1, 2, 3}},
                             {{.temperature = 1, .top_k = 2}, {1, 3}},
                             {{.temperature = 1, .top_p = 0.39}, {1}},
                             {{.temperature = 1, .top_p = 0.69}, {1, 3}},
                             {{.temperature = 1, .top_p = 0.71}, {1, 2, 3}},
                             // The three likeliest have probabilities 4/9, 3/9 and 2/9.
                             {{.temperature = 1, .top_k = 3, .top_p = 0.76}, {1, 3}},
                             // All are nearly equal.
                             {{.temperature = 1e6, .top_p = 0.6}, {1, 2, 3}}}) {
    std::set<int64_t> drawn;
    for (uint64_t number = 0; number < 200; ++number)
      drawn.insert(Draw(probabilities, each.options, number));
    EXPECT_EQ(drawn, each.drawn) << each.options.top_k << " " << each.options.top_p;
  }
}

TEST(DrawToken, FollowsTheProbabilities) {
  int64_t size = 300;
  std::vector<double> probabilities(size, 0.5 / static_cast<double>(size - 1));
  probabilities[200] = 0.5;
  int64_t hits = 0;
  std::set<int64_t> drawn;
  for (uint64_t number = 0; number < 2000; ++number) {
    drawn.insert(Draw(probabilities, {.temperature = 1, .seed = 9}, number));
    hits += Draw(probabilities, {.temperature = 1, .seed = 9}, number) == 200;
  }
  EXPECT_NEAR(static_cast<double>(hits), 1000, 80);
  EXPECT_GT(drawn.size(), 250u);
}

TEST(StopText, FindsTheFirst) {
  StopText stop({"abcd", "cx", "\n"});
  EXPECT_EQ(stop.Find("--abcx\n"), 4u);
  EXPECT_EQ(stop.Find("abc"), std::nullopt);
  EXPECT_EQ(StopText({}).Find("abc"), std::nullopt);
}

TEST(StopText, HoldsBackTheBeginningsOfStopStrings) {
  StopText stop({"abcd", "aab"});
  EXPECT_EQ(stop.Settled("xyz"), 3u);
  EXPECT_EQ(stop.Settled("xyabc"), 2u);
  EXPECT_EQ(stop.Settled("a"), 0u);
  EXPECT_EQ(stop.Settled("xaa"), 1u);
  EXPECT_EQ(stop.Settled("xbcd"), 4u);
  EXPECT_EQ(stop.Settled(""), 0u);
  EXPECT_EQ(StopText({}).Settled("abc"), 3u);
}

}  // namespace
}  // namespace heddle::run
