#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/add.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/reciprocal.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/capture/optimizer.h"
#include "heddle/run/models/test/inputs.h"
#include "heddle/run/runtime/rank_program.h"
#include "test/checks/narrow_model.h"

namespace heddle {
namespace {

struct Case {
  const char* family;
  const char* flavor;
  DType compute;
  run::AttentionKind attention;
  int64_t window = 0;
};

std::string NameOf(const testing::TestParamInfo<Case>& info) {
  return fmt::format("{}_{}_{}_{}{}", info.param.family, info.param.flavor,
                     Name(info.param.compute),
                     info.param.attention == run::AttentionKind::kFlash ? "flash" : "math",
                     info.param.window > 0 ? "_window" : "");
}

bool SameBits(const at::Tensor& a, const at::Tensor& b) {
  if (a.scalar_type() != b.scalar_type() || a.sizes() != b.sizes()) return false;
  at::Tensor x = a.contiguous();
  at::Tensor y = b.contiguous();
  return std::memcmp(x.data_ptr(), y.data_ptr(), x.nbytes()) == 0;
}

class CaptureTest : public testing::TestWithParam<Case> {
 protected:
  CaptureTest() {
    at::set_num_threads(1);
    const Case& c = GetParam();
    run::ModelConfig config = *run::FindModel(c.family, c.flavor);
    if (c.compute == DType::kBF16) MakeNarrow(config);
    config.window = c.window;
    // Uses whole debug models, except for the one with 300 million parameters.
    if (config.moe.experts > 16) {
      config.moe.experts = 16;
      config.n_layers = 2;
    }
    Make(config);
  }
  void Make(const run::ModelConfig& config) {
    run::StepNumerics numerics{GetParam().compute, GetParam().attention, run::Target::kCpu};
    model_ = *run::MakeModel(config, {.batch = 2, .seq_len = 16}, numerics);
  }

  Module CaptureModel(const run::CaptureOptions& options = {}) {
    Result<Module> module = run::Capture(model_.loss, model_.params, model_.inputs, options);
    EXPECT_TRUE(module.ok()) << Format(module.diagnostics());
    return module.ok() ? *module : Module();
  }

  // Returns loss and gradients, in the order of the graph's outputs.
  std::vector<at::Tensor> Eager(std::span<const at::Tensor> params,
                                std::span<const at::Tensor> inputs) {
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& p : params) leaves.push_back(p.detach().clone().set_requires_grad(true));
    at::Tensor loss = model_.loss(leaves, inputs);
    std::vector<at::Tensor> results{loss.detach()};
    for (at::Tensor& grad : torch::autograd::grad({loss}, leaves))
      results.push_back(std::move(grad));
    return results;
  }

  static std::vector<at::Tensor> Join(std::vector<at::Tensor> a, const std::vector<at::Tensor>& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }

  void ExpectEqualBits(const Module& module, const Graph& graph, const std::vector<at::Tensor>& got,
                       const std::vector<at::Tensor>& expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
      EXPECT_TRUE(SameBits(got[i], expected[i])) << PrintOutput(module, graph, graph.outputs()[i]);
    }
  }

  run::Model model_;
};

TEST_P(CaptureTest, GivesTheBitsOfEagerAutograd) {
  Module module = CaptureModel();
  ASSERT_EQ(module.graphs.size(), 1u);
  Result<run::RankProgram> program = run::RankProgram::Compile(module, module.graphs[0]);
  ASSERT_TRUE(program.ok()) << Format(program.diagnostics());
  std::vector<at::Tensor> params = run::InitParams(model_, 7);
  for (int64_t step = 0; step < 3; ++step) {
    std::vector<at::Tensor> inputs = run::MakeInputs(model_, 7, step);
    Result<std::vector<at::Tensor>> got = program->RunAlone(Join(params, inputs));
    ASSERT_TRUE(got.ok()) << Format(got.diagnostics());
    ExpectEqualBits(module, module.graphs[0], *got, Eager(params, inputs));
  }
}

TEST_P(CaptureTest, EveryNodeOutsideTheRootHasAScope) {
  Module module = CaptureModel();
  const Graph& graph = module.graphs[0];
  for (NodeId id : graph.nodes())
    EXPECT_FALSE(graph.scope(id).empty()) << PrintNode(module, graph, id);
  // A gradient is computed in the module of its parameter, or where several uses of it are summed.
  for (const Output& output : graph.outputs()) {
    if (output.role != OutputRole::kGrad) continue;
    EXPECT_EQ(graph[graph[output.value].producer].phase, Phase::kBackward);
    std::string module_name = model_.params[static_cast<size_t>(output.index)].name;
    module_name = module_name.substr(0, module_name.rfind('.'));
    EXPECT_EQ(graph.scope(graph[output.value].producer), module_name);
  }
}

TEST_P(CaptureTest, SurvivesTextAndCleaning) {
  Module module = CaptureModel();
  std::string text = Print(module);
  Result<Module> again = ParseModule(text, "captured", Ops());
  ASSERT_TRUE(again.ok()) << Format(again.diagnostics());
  EXPECT_EQ(Print(*again), text);
  Result<compile::RunReport> report =
      compile::RunPipeline(*again, *compile::ParsePipeline("clean", compile::Passes()));
  ASSERT_TRUE(report.ok()) << Format(report.diagnostics());
  std::vector<at::Tensor> inputs = Join(run::InitParams(model_, 7), run::MakeInputs(model_, 7, 0));
  ExpectEqualBits(module, module.graphs[0],
                  *run::RankProgram::Compile(*again, again->graphs[0])->RunAlone(inputs),
                  *run::RankProgram::Compile(module, module.graphs[0])->RunAlone(inputs));
}

TEST_P(CaptureTest, WithTheOptimizerFiveStepsGiveTheSameState) {
  // The update of a parameter does not depend on its size.
  run::ModelConfig config = model_.config;
  MakeNarrow(config);
  Make(config);
  run::CaptureOptions options;
  options.optimizer = run::OptimizerOptions();
  const run::OptimizerOptions& o = *options.optimizer;
  Module module = CaptureModel(options);
  const Graph& graph = module.graphs[0];
  run::RankProgram program = *run::RankProgram::Compile(module, graph);
  std::vector<at::Tensor> params = run::InitParams(model_, 7);
  size_t n = params.size();
  std::vector<at::Tensor> averages, squares;
  for (const at::Tensor& p : params) {
    averages.push_back(at::zeros_like(p));
    squares.push_back(at::zeros_like(p));
  }
  auto clones = [](const std::vector<at::Tensor>& tensors) {
    std::vector<at::Tensor> copies;
    for (const at::Tensor& t : tensors) copies.push_back(t.clone());
    return copies;
  };
  std::vector<at::Tensor> eager_params = clones(params), eager_averages = clones(averages),
                          eager_squares = clones(squares);
  for (int64_t step = 0; step < 5; ++step) {
    std::vector<at::Tensor> batch = run::MakeInputs(model_, 7, step);
    // The learning rate changes from step to step, like a schedule's.
    double lr = 8e-4 / static_cast<double>(step + 1);
    at::Tensor number = at::full({}, static_cast<double>(step + 1), at::kFloat);
    // The graph: state is passed by role and updated in place.
    std::vector<at::Tensor> inputs;
    size_t next_batch = 0;
    for (const Input& input : graph.inputs()) {
      auto i = static_cast<size_t>(input.index);
      if (input.role == InputRole::kParam)
        inputs.push_back(params[i]);
      else if (input.role == InputRole::kOpt)
        inputs.push_back(input.label == "exp_avg" ? averages[i] : squares[i]);
      else if (input.role == InputRole::kHyper)
        inputs.push_back(input.label == "lr" ? at::full({}, lr, at::kDouble) : number);
      else
        inputs.push_back(batch[next_batch++]);
    }
    Result<std::vector<at::Tensor>> outputs = program.RunAlone(inputs);
    ASSERT_TRUE(outputs.ok()) << Format(outputs.diagnostics());
    size_t updates = 0;
    for (size_t k = 0; k < outputs->size(); ++k) {
      if (graph.outputs()[k].role != OutputRole::kUpdate) continue;
      EXPECT_TRUE((*outputs)[k].is_same(inputs[graph.outputs()[k].target.index()]));
      ++updates;
    }
    EXPECT_EQ(updates, 3 * n);
    // Eager, in place.
    std::vector<at::Tensor> results = Eager(eager_params, batch);
    std::vector<at::Tensor> grads(results.begin() + 1, results.end());
    at::NoGradGuard no_grad;
    // As torch.nn.utils.clip_grad_norm_ computes it.
    std::vector<at::Tensor> norms;
    for (const at::Tensor& grad : grads) norms.push_back(at::linalg_vector_norm(grad, 2));
    at::Tensor norm = at::linalg_vector_norm(at::stack(norms), 2);
    at::Tensor factor =
        at::clamp(at::mul(at::reciprocal(at::add(norm, 1e-6)), o.max_norm), std::nullopt, 1.0);
    for (at::Tensor& grad : grads) grad.mul_(factor);
    std::vector<at::Tensor> numbers(n, number);
    at::_fused_adamw_(eager_params, grads, eager_averages, eager_squares, {}, numbers, lr, o.beta1,
                      o.beta2, o.weight_decay, o.eps, false, false);
    for (size_t i = 0; i < n; ++i) {
      EXPECT_TRUE(SameBits(params[i], eager_params[i])) << step << " " << model_.params[i].name;
      EXPECT_TRUE(SameBits(averages[i], eager_averages[i])) << step << " " << model_.params[i].name;
      EXPECT_TRUE(SameBits(squares[i], eager_squares[i])) << step << " " << model_.params[i].name;
    }
  }
}

constexpr Case kCases[] = {
    {"llama3", "debugmodel", DType::kF32, run::AttentionKind::kFlash},
    {"llama3", "debugmodel", DType::kF32, run::AttentionKind::kMath},
    {"llama3", "debugmodel", DType::kBF16, run::AttentionKind::kFlash},
    {"llama3", "debugmodel", DType::kBF16, run::AttentionKind::kMath},
    {"mistral", "debugmodel", DType::kF32, run::AttentionKind::kMath, /*window=*/5},
    {"mistral", "debugmodel", DType::kBF16, run::AttentionKind::kMath, /*window=*/5},
    {"qwen3", "debugmodel", DType::kF32, run::AttentionKind::kFlash},
    {"qwen3", "debugmodel", DType::kF32, run::AttentionKind::kMath},
    {"qwen3", "debugmodel", DType::kBF16, run::AttentionKind::kFlash},
    {"qwen3", "debugmodel", DType::kBF16, run::AttentionKind::kMath},
    {"qwen3", "debugmodel_moe", DType::kF32, run::AttentionKind::kFlash},
    {"qwen3", "debugmodel_moe", DType::kBF16, run::AttentionKind::kFlash},
    {"deepseek_v3", "debugmodel", DType::kF32, run::AttentionKind::kFlash},
    {"deepseek_v3", "debugmodel", DType::kF32, run::AttentionKind::kMath},
    {"deepseek_v3", "debugmodel", DType::kBF16, run::AttentionKind::kFlash},
    {"deepseek_v3", "debugmodel", DType::kBF16, run::AttentionKind::kMath},
    {"gemma2", "debugmodel", DType::kF32, run::AttentionKind::kMath, /*window=*/5},
    {"gemma2", "debugmodel", DType::kBF16, run::AttentionKind::kMath, /*window=*/5},
    {"gemma3", "debugmodel", DType::kF32, run::AttentionKind::kMath, /*window=*/5},
    {"gemma3", "debugmodel", DType::kBF16, run::AttentionKind::kFlash},
    {"gpt_oss", "debugmodel", DType::kF32, run::AttentionKind::kMath, /*window=*/5},
    {"gpt_oss", "debugmodel", DType::kBF16, run::AttentionKind::kMath, /*window=*/5},
    {"gpt2", "debugmodel", DType::kF32, run::AttentionKind::kFlash},
    {"gpt2", "debugmodel", DType::kBF16, run::AttentionKind::kFlash},
};
INSTANTIATE_TEST_SUITE_P(Models, CaptureTest, testing::ValuesIn(kCases), NameOf);

}  // namespace
}  // namespace heddle
