// Steps for CUDA, captured on any machine and run on a GPU, have the bits of eager autograd there.
// Skipped without a GPU.
#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/ops/rand.h>
#include <torch/csrc/autograd/autograd.h>

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/models/test/inputs.h"
#include "heddle/run/runtime/rank_program.h"

namespace heddle {
namespace {

struct CudaCase {
  const char* family;
  const char* flavor;
  run::AttentionKind attention;
};

class CudaTest : public testing::TestWithParam<CudaCase> {
 protected:
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
    at::globalContext().setDeterministicAlgorithms(true, /*warn_only=*/true);
  }
};

std::string CudaName(const testing::TestParamInfo<CudaCase>& info) {
  constexpr std::string_view kNames[] = {"fastest", "cudnn", "flash", "math"};
  return fmt::format("{}_{}_{}", info.param.family, info.param.flavor,
                     kNames[static_cast<size_t>(info.param.attention)]);
}

// Needs no GPU.
TEST(StepsForCuda, AreReadBackAsTheyWereCaptured) {
  for (auto [family, flavor] : {std::pair("llama3", "debugmodel"), {"deepseek_v3", "debugmodel"}}) {
    for (run::AttentionKind attention :
         {run::AttentionKind::kCudnn, run::AttentionKind::kFlash, run::AttentionKind::kMath}) {
      run::Model model =
          *run::MakeModel(*run::FindModel(family, flavor), {.batch = 1, .seq_len = 32},
                          {DType::kBF16, attention, run::Target::kCuda});
      Result<Module> module = run::Capture(model.loss, model.params, model.inputs);
      ASSERT_TRUE(module.ok()) << Format(module.diagnostics());
      std::string text = Print(*module);
      Result<Module> again = ParseModule(text, "printed", Ops());
      ASSERT_TRUE(again.ok()) << Format(again.diagnostics());
      EXPECT_EQ(Print(*again), text);
    }
  }
}

// cuDNN's backward does not repeat the bits of dQ, even with libtorch's deterministic setting.
TEST(StepsForCuda, AreDeterministicWithoutCudnn) {
  run::StepNumerics numerics{DType::kBF16, run::AttentionKind::kFastest, run::Target::kCuda};
  run::Model fastest = *run::MakeModel(*run::FindModel("llama3", "debugmodel"),
                                       {.batch = 1, .seq_len = 32}, numerics);
  EXPECT_EQ(fastest.attention(), run::AttentionKind::kCudnn);
  numerics.deterministic = true;
  run::Model exact = *run::MakeModel(*run::FindModel("llama3", "debugmodel"),
                                     {.batch = 1, .seq_len = 32}, numerics);
  EXPECT_EQ(exact.attention(), run::AttentionKind::kFlash);
  std::string text = Print(*run::Capture(exact.loss, exact.params, exact.inputs));
  EXPECT_EQ(text.find("cudnn"), std::string::npos);
  EXPECT_NE(text.find("aten._scaled_dot_product_flash_attention("), std::string::npos);
}

TEST_P(CudaTest, GivesTheBitsOfEagerAutograd) {
  run::ModelConfig config = *run::FindModel(GetParam().family, GetParam().flavor);
  if (config.moe.experts > 16) config.moe.experts = 16;
  config.n_layers = 2;
  run::Model model = *run::MakeModel(config, {.batch = 2, .seq_len = 128},
                                     {DType::kBF16, GetParam().attention, run::Target::kCuda});
  Result<Module> module = run::Capture(model.loss, model.params, model.inputs);
  ASSERT_TRUE(module.ok()) << Format(module.diagnostics());
  Result<run::RankProgram> program =
      run::RankProgram::Compile(*module, module->graphs[0], {.device = c10::kCUDA});
  ASSERT_TRUE(program.ok()) << Format(program.diagnostics());
  std::vector<at::Tensor> params;
  std::vector<at::Tensor> values;
  for (const at::Tensor& p : run::InitParams(model, 7)) {
    values.push_back(p.to(at::kCUDA));
    params.push_back(p.to(at::kCUDA).set_requires_grad(true));
  }
  for (int64_t step = 0; step < 3; ++step) {
    std::vector<at::Tensor> inputs;
    for (const at::Tensor& t : run::MakeInputs(model, 7, step)) inputs.push_back(t.to(at::kCUDA));
    std::vector<at::Tensor> all = values;
    all.insert(all.end(), inputs.begin(), inputs.end());
    Result<std::vector<at::Tensor>> got = program->RunAlone(all);
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

constexpr CudaCase kCudaCases[] = {{"llama3", "debugmodel", run::AttentionKind::kCudnn},
                                   {"llama3", "debugmodel", run::AttentionKind::kFlash},
                                   {"llama3", "debugmodel", run::AttentionKind::kMath},
                                   {"qwen3", "debugmodel", run::AttentionKind::kFlash},
                                   {"qwen3", "debugmodel_moe", run::AttentionKind::kFlash},
                                   {"deepseek_v3", "debugmodel", run::AttentionKind::kCudnn},
                                   {"deepseek_v3", "debugmodel", run::AttentionKind::kFlash},
                                   {"deepseek_v3", "debugmodel", run::AttentionKind::kMath},
                                   {"gemma2", "debugmodel", run::AttentionKind::kMath},
                                   {"gemma3", "debugmodel", run::AttentionKind::kMath},
                                   {"gpt_oss", "debugmodel", run::AttentionKind::kMath},
                                   {"gpt2", "debugmodel", run::AttentionKind::kFlash}};
INSTANTIATE_TEST_SUITE_P(Models, CudaTest, testing::ValuesIn(kCudaCases), CudaName);

// Backward gets the output of forward and its gradient as they are, or copied to another layout:
// `%o` becomes `%out`, `%g` becomes `%grad`.
struct AttentionLayout : testing::TestWithParam<std::pair<const char*, const char*>> {
  void SetUp() override {
    if (!at::hasCUDA()) GTEST_SKIP() << "no GPU";
    for (size_t i = 0; i < 4; ++i)
      operands.push_back(at::rand({2, 6, 8, 16}).to(at::kCUDA, at::kBFloat16));
  }
  std::vector<at::Tensor> Gradients(const std::string& copies) {
    std::string sizes = "bf16[2,6,8,16]";
    Result<Module> module = ParseModule(
        fmt::format(
            "heddle 1 local\ngraph @g(%q: {0}, %k: {0}, %v: {0}, %g: {0}) -> (%dq, %dk, %dv) {{\n"
            "{1}\n{2}{3}\n}}\n",
            sizes, GetParam().first, copies, GetParam().second),
        "test", Ops());
    EXPECT_TRUE(module.ok()) << Format(module.diagnostics());
    if (!module.ok()) return {};
    return *run::RankProgram::Compile(*module, module->graphs[0], {.device = c10::kCUDA})
                ->RunAlone(operands);
  }
  std::vector<at::Tensor> operands;
};

TEST_P(AttentionLayout, OfTheOutputDoesNotMatter) {
  const std::string kept = "  %out = aten.alias(%o)\n  %grad = aten.alias(%g)\n";
  const std::string contiguous =
      "  %out = aten.clone(%o, memory_format=contiguous)\n"
      "  %grad = aten.clone(%g, memory_format=contiguous)\n";
  const std::string positions_first =
      "  %ot = aten.transpose.int(%o, dim0=1, dim1=2)\n"
      "  %oc = aten.clone(%ot, memory_format=contiguous)\n"
      "  %out = aten.transpose.int(%oc, dim0=1, dim1=2)\n"
      "  %gt = aten.transpose.int(%g, dim0=1, dim1=2)\n"
      "  %gc = aten.clone(%gt, memory_format=contiguous)\n"
      "  %grad = aten.transpose.int(%gc, dim0=1, dim1=2)\n";
  std::vector<at::Tensor> expected = Gradients(kept);
  for (const std::string& copies : {contiguous, positions_first}) {
    std::vector<at::Tensor> got = Gradients(copies);
    for (size_t i = 0; i < 3; ++i)
      EXPECT_TRUE(got[i].to(at::kFloat).allclose(expected[i].to(at::kFloat), 2e-2, 2e-2))
          << copies << i;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kernels, AttentionLayout,
    testing::Values(
        std::pair(
            "  %o, %l, %a, %b = aten._scaled_dot_product_efficient_attention(%q, %k, %v, "
            "compute_log_sumexp=true)",
            "  %dq, %dk, %dv, %m = aten._scaled_dot_product_efficient_attention_backward(%grad, "
            "%q, %k, %v, %out, %l, "
            "%a, %b, dropout_p=0.0, grad_input_mask=[true,true,true,false])"),
        std::pair(
            "  %o, %l, %cq, %ck, %a, %b, %d = aten._scaled_dot_product_cudnn_attention(%q, %k, %v, "
            "compute_log_sumexp=true)",
            "  %dq, %dk, %dv = aten._scaled_dot_product_cudnn_attention_backward(%grad, %q, %k, "
            "%v, %out, %l, %a, %b, "
            "max_q=8, max_k=8, dropout_p=0.0, is_causal=false)"),
        std::pair(
            "  %o, %l, %cq, %ck, %a, %b, %d = aten._scaled_dot_product_flash_attention(%q, %k, %v)",
            "  %dq, %dk, %dv = aten._scaled_dot_product_flash_attention_backward(%grad, %q, %k, "
            "%v, %out, %l, %a, %b, "
            "max_q=8, max_k=8, dropout_p=0.0, is_causal=false)")));

}  // namespace
}  // namespace heddle
