// Splits and joins training steps, random and imported: for every policy, the second split equals
// the first, as text.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/import/import.h"
#include "test/checks/random_training.h"

namespace heddle {
namespace {

constexpr uint32_t kSteps = 500;
constexpr const char* kPolicies[] = {"none", "full", "layers:2", "selective", "min-cut"};

std::string After(Module module, const std::string& pipeline) {
  Result<compile::RunReport> report =
      compile::RunPipeline(module, *compile::ParsePipeline(pipeline, compile::Passes()));
  EXPECT_TRUE(report.ok()) << pipeline << "\n" << Format(report.diagnostics());
  return Print(module);
}

TEST(Partition, TwiceIsOnce) {
  for (uint32_t seed = 0; seed < kSteps; ++seed) {
    Result<Module> step = ParseModule(RandomTraining(seed), "random", Ops());
    ASSERT_TRUE(step.ok()) << Format(step.diagnostics());
    std::string policy = kPolicies[seed % std::size(kPolicies)];
    std::string once = "checkpoint{policy=\"" + policy + "\"}, rematerialize, clean, partition";
    std::string first = After(*step, once);
    ASSERT_NE(first.find("@bwd"), std::string::npos) << first;
    EXPECT_EQ(After(*step, once + ", join, partition"), first) << seed << " " << policy;
    EXPECT_EQ(After(*step, once + ", join, clean, partition"), first) << seed << " " << policy;
    EXPECT_EQ(After(*step, once + ", clean, join, partition"), first) << seed << " " << policy;
  }
}

// A value that is marked to be recomputed is not saved.
TEST(Partition, SavesNothingThatIsComputedAgain) {
  int marked = 0;
  for (uint32_t seed = 0; seed < kSteps; ++seed) {
    Result<Module> module = ParseModule(RandomTraining(seed), "random", Ops());
    ASSERT_TRUE(module.ok());
    std::string policy = kPolicies[seed % std::size(kPolicies)];
    Result<compile::Pipeline> pipeline = compile::ParsePipeline(
        "clean, checkpoint{policy=\"" + policy + "\"}, rematerialize, partition",
        compile::Passes());
    ASSERT_TRUE(compile::RunPipeline(*module, *pipeline).ok());
    const Graph& forward = module->graphs[0];
    for (ValueId v : forward.values()) marked += forward[v].keep == Keep::kPreferRecompute;
    for (const Output& output : forward.outputs()) {
      if (output.role != OutputRole::kSaved) continue;
      NodeId producer = forward[output.value].producer;
      bool draws = producer && forward.op(producer).effect() == Effect::kRandom;
      EXPECT_TRUE(draws || forward[output.value].keep != Keep::kPreferRecompute)
          << seed << " " << output.label;
    }
  }
  EXPECT_GT(marked, static_cast<int>(kSteps));
}

// A joint graph as PyTorch prints it: two layers whose weights are gathered, and gradients that are
// scattered.
constexpr char kPrinted[] = R"(class joint_helper(torch.nn.Module):
    def forward(self, primals_1: "f32[4, 16]", primals_2: "f32[2, 32]", primals_3: "f32[8, 16]", tangents_1: "f32[8, 16]"):
        all_gather_into_tensor: "f32[32, 16]" = torch.ops._c10d_functional.all_gather_into_tensor.default(primals_1, 8, '0')
        wait_tensor: "f32[32, 16]" = torch.ops._c10d_functional.wait_tensor.default(all_gather_into_tensor);  all_gather_into_tensor = None
        all_gather_into_tensor_1: "f32[16, 32]" = torch.ops._c10d_functional.all_gather_into_tensor.default(primals_2, 8, '0')
        wait_tensor_1: "f32[16, 32]" = torch.ops._c10d_functional.wait_tensor.default(all_gather_into_tensor_1);  all_gather_into_tensor_1 = None
        permute: "f32[16, 32]" = torch.ops.aten.permute.default(wait_tensor, [1, 0])
        mm: "f32[8, 32]" = torch.ops.aten.mm.default(primals_3, permute);  permute = None
        sigmoid: "f32[8, 32]" = torch.ops.aten.sigmoid.default(mm)
        mul: "f32[8, 32]" = torch.ops.aten.mul.Tensor(mm, sigmoid)
        permute_1: "f32[32, 16]" = torch.ops.aten.permute.default(wait_tensor_1, [1, 0])
        mm_1: "f32[8, 16]" = torch.ops.aten.mm.default(mul, permute_1);  permute_1 = None
        add: "f32[8, 16]" = torch.ops.aten.add.Tensor(mm_1, primals_3)
        permute_2: "f32[16, 8]" = torch.ops.aten.permute.default(tangents_1, [1, 0])
        mm_2: "f32[16, 32]" = torch.ops.aten.mm.default(permute_2, mul);  permute_2 = None
        mm_3: "f32[8, 32]" = torch.ops.aten.mm.default(tangents_1, wait_tensor_1)
        mul_1: "f32[8, 32]" = torch.ops.aten.mul.Tensor(mm_3, sigmoid)
        permute_3: "f32[32, 8]" = torch.ops.aten.permute.default(mul_1, [1, 0])
        mm_4: "f32[32, 16]" = torch.ops.aten.mm.default(permute_3, primals_3)
        reduce_scatter_tensor: "f32[2, 32]" = torch.ops._c10d_functional.reduce_scatter_tensor.default(mm_2, 'avg', 8, '0');  mm_2 = None
        wait_tensor_2: "f32[2, 32]" = torch.ops._c10d_functional.wait_tensor.default(reduce_scatter_tensor)
        reduce_scatter_tensor_1: "f32[4, 16]" = torch.ops._c10d_functional.reduce_scatter_tensor.default(mm_4, 'avg', 8, '0');  mm_4 = None
        wait_tensor_3: "f32[4, 16]" = torch.ops._c10d_functional.wait_tensor.default(reduce_scatter_tensor_1)
        return (add, wait_tensor_3, wait_tensor_2, None)
)";

size_t CountOf(const Graph& graph, OpId op) {
  return static_cast<size_t>(
      std::ranges::count_if(graph.nodes(), [&](NodeId node) { return graph[node].op == op; }));
}

std::vector<std::string> SavedBy(const Graph& graph) {
  std::vector<std::string> saved;
  for (const Output& output : graph.outputs()) {
    if (output.role == OutputRole::kSaved) saved.push_back(output.label);
  }
  return saved;
}

TEST(Partition, TwiceIsOnceForImportedGraphs) {
  std::set<std::vector<std::string>> saved;
  for (const char* policy : kPolicies) {
    for (const char* reshard : {"always", "never"}) {
      Result<Imported> imported = Import(kPrinted, "joint.py", {});
      ASSERT_TRUE(imported.ok()) << Format(imported.diagnostics());
      Module module = std::move(imported->module);
      ASSERT_EQ(CountOf(module.graphs[0], op::comm_all_gather), 2U);
      std::string once = fmt::format(
          "clean, checkpoint{{policy=\"{}\"}}, rematerialize, "
          "reshard-after-forward{{policy=\"{}\"}}, partition",
          policy, reshard);
      Module first = module;
      ASSERT_TRUE(
          compile::RunPipeline(first, *compile::ParsePipeline(once, compile::Passes())).ok())
          << once;
      saved.insert(SavedBy(first.graphs[0]));
      // Forward gathers each weight once, and backward gathers those that were not saved.
      EXPECT_EQ(CountOf(first.graphs[0], op::comm_all_gather), 2U) << once;
      std::string text = Print(first);
      EXPECT_EQ(After(module, once + ", join, partition"), text) << once;
      EXPECT_EQ(After(module, once + ", join, clean, partition"), text) << once;
    }
  }
  EXPECT_GT(saved.size(), 2U);
}

}  // namespace
}  // namespace heddle
