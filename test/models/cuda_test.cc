// Steps for CUDA, captured on any machine, run on a GPU: the bits of eager autograd there. Skipped where there is none.
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <torch/csrc/autograd/autograd.h>

#include "heddle/ir/print.h"
#include "heddle/models/init.h"
#include "heddle/runtime/program.h"

namespace heddle {
namespace {

struct Case {
  const char* family;
  const char* flavor;
  AttentionKind attention;
};

class CudaTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  }
};

std::string NameOf(const testing::TestParamInfo<Case>& info) {
  return fmt::format("{}_{}_{}", info.param.family, info.param.flavor,
                     info.param.attention == AttentionKind::kFlash ? "flash" : "math");
}

TEST_P(CudaTest, GivesTheBitsOfEagerAutograd) {
  ModelConfig config = *FindModel(GetParam().family, GetParam().flavor);
  if (config.moe.experts > 16) config.moe.experts = 16;
  config.n_layers = 2;
  Model model = *MakeModel(config, {.batch = 2, .seq_len = 128},
                           {DType::kBF16, GetParam().attention, Target::kCuda});
  Result<Module> module = Capture(model.loss, model.params, model.inputs);
  ASSERT_TRUE(module.ok()) << Format(module.diagnostics());
  Result<Program> program = Program::Compile(*module, module->graphs[0], c10::kCUDA);
  ASSERT_TRUE(program.ok()) << Format(program.diagnostics());
  std::vector<at::Tensor> params;
  std::vector<at::Tensor> values;
  for (const at::Tensor& p : InitParams(model, 7)) {
    values.push_back(p.to(at::kCUDA));
    params.push_back(p.to(at::kCUDA).set_requires_grad(true));
  }
  for (int64_t step = 0; step < 3; ++step) {
    std::vector<at::Tensor> inputs;
    for (const at::Tensor& t : MakeInputs(model, 7, step)) inputs.push_back(t.to(at::kCUDA));
    std::vector<at::Tensor> all = values;
    all.insert(all.end(), inputs.begin(), inputs.end());
    Result<std::vector<at::Tensor>> got = program->Run(all);
    ASSERT_TRUE(got.ok()) << Format(got.diagnostics());
    at::Tensor loss = model.loss(params, inputs);
    std::vector<at::Tensor> expected{loss.detach()};
    for (at::Tensor& grad : torch::autograd::grad({loss}, params))
      expected.push_back(std::move(grad));
    ASSERT_EQ(got->size(), expected.size());
    for (size_t i = 0; i < got->size(); ++i) {
      EXPECT_TRUE((*got)[i].equal(expected[i]))
          << PrintOutput(*module, module->graphs[0], module->graphs[0].outputs()[i]);
    }
  }
}

constexpr Case kCases[] = {{"llama3", "debugmodel", AttentionKind::kFlash},
                           {"llama3", "debugmodel", AttentionKind::kMath},
                           {"qwen3", "debugmodel", AttentionKind::kFlash},
                           {"qwen3", "debugmodel_moe", AttentionKind::kFlash},
                           {"deepseek_v3", "debugmodel", AttentionKind::kFlash},
                           {"deepseek_v3", "debugmodel", AttentionKind::kMath}};
INSTANTIATE_TEST_SUITE_P(Models, CudaTest, testing::ValuesIn(kCases), NameOf);

}  // namespace
}  // namespace heddle
