// Tests of tuned matrix products: shapes of nodes, stored choices, and steps.
#include <gtest/gtest.h>

#include <ATen/ops/mm.h>

#include "heddle/core/base/file.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/runtime/device/matmuls.h"
#include "heddle/run/runtime/device/same_numbers.h"
#include "heddle/run/runtime/rank_program.h"

namespace heddle::run {
namespace {

// A product with each way to store its operands, one of f32, and one whose operand is a slice.
constexpr const char* kProducts = R"(heddle 1 local
graph @g(%x: bf16[32,16], %w: bf16[16,16], %v: bf16[48,16], %f: f32[16,16]) -> (%a, %b, %c, %d, %e) {
  %wt = aten.t(%w)
  %vt = aten.transpose.int(%v, dim0=0, dim1=1)
  %xt = aten.t(%x)
  %a = aten.mm(%x, %w)
  %b = aten.mm(%x, %vt)
  %c = aten.mm(%xt, %x)
  %d = aten.mm(%f, %f)
  %part = aten.slice.Tensor(%v, dim=1, start=0, end=8)
  %top = aten.slice.Tensor(%w, dim=0, start=0, end=8)
  %e = aten.mm(%part, %top)
}
)";

Module Products() {
  Result<Module> module = ParseModule(kProducts, "test", Ops());
  EXPECT_TRUE(module.ok()) << Format(module.diagnostics());
  return *std::move(module);
}

std::vector<std::string> ShapesOf(const Graph& graph) {
  std::vector<std::string> shapes;
  for (NodeId node : graph.nodes()) {
    if (graph[node].op != op::mm) continue;
    std::optional<MatmulShape> shape = MatmulShapeOf(graph, node);
    shapes.push_back(shape ? shape->Format() : "none");
  }
  return shapes;
}

TEST(Matmuls, FindShapes) {
  Module module = Products();
  EXPECT_EQ(ShapesOf(module.graphs[0]),
            (std::vector<std::string>{"32 x 16 x 16", "32 x 48 x 16, B transposed",
                                      "16 x 16 x 32, A transposed", "none", "48 x 16 x 8"}));
}

// Computes products as a kernel does: from the addresses of its operands alone.
class StoredProduct : public GroupKernel {
 public:
  StoredProduct(MatmulShape shape, int& runs) : shape_(shape), runs_(runs) {}
  void Run(std::span<const at::Tensor> inputs, std::span<const at::Tensor> outputs) const override {
    ++runs_;
    auto stored = [](const at::Tensor& tensor, int64_t rows, int64_t columns, bool transposed) {
      return tensor.as_strided({rows, columns}, {transposed ? 1 : columns, transposed ? rows : 1});
    };
    outputs[0].copy_(at::mm(stored(inputs[0], shape_.m, shape_.k, shape_.a_transposed),
                            stored(inputs[1], shape_.k, shape_.n, shape_.b_transposed)));
  }

 private:
  MatmulShape shape_;
  int& runs_;
};

class ProductKernels : public Kernels {
 public:
  std::unique_ptr<LossKernel> Loss(const LossRun&) override { return nullptr; }
  std::unique_ptr<AdamWKernel> AdamW(const AdamWRun&) override { return nullptr; }
  std::unique_ptr<GroupKernel> SquaredNorm() override { return nullptr; }
  std::shared_ptr<const GroupKernel> Program(const KernelProgram&) override { return nullptr; }
  std::shared_ptr<const GroupKernel> NormWeight(int64_t, DType) override { return nullptr; }
  std::shared_ptr<const GroupKernel> IndexAdd(const IndexAddRun&) override { return nullptr; }
  std::shared_ptr<const GroupKernel> Casts(DType) override { return nullptr; }
  std::shared_ptr<const GroupKernel> Matmul(const MatmulShape& shape) override {
    return std::make_shared<StoredProduct>(shape, runs);
  }
  int runs = 0;

 protected:
  void Refuse(const std::string&, std::string_view) const override {}
};

// A tensor of random numbers at an address that is a multiple of 256, or not.
at::Tensor Numbers(at::IntArrayRef sizes, int64_t seed, bool aligned) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  at::Tensor numbers = ProofNumbers(count + 256, DType::kBF16, seed, false, c10::kCPU);
  auto past = static_cast<int64_t>(reinterpret_cast<uintptr_t>(numbers.const_data_ptr()) % 256);
  int64_t first = (256 - past) / 2 % 128 + (aligned ? 0 : 8);
  return numbers.slice(0, first, first + count).view(sizes);
}

TEST(Matmuls, RunWhereOperandsAreStoredAsExpected) {
  Module module = Products();
  for (bool aligned : {true, false}) {
    ProductKernels kernels;
    RankProgram tuned = *RankProgram::Compile(
        module, module.graphs[0],
        {.kernels = [&](const Graph& graph) { return ArrangeKernels(graph, kernels); }});
    RankProgram plain = *RankProgram::Compile(module, module.graphs[0]);
    Tensors inputs = {Numbers({32, 16}, 1, aligned), Numbers({16, 16}, 2, aligned),
                      Numbers({48, 16}, 3, aligned), Numbers({16, 16}, 4, true).to(at::kFloat)};
    Tensors expected = *plain.RunAlone(inputs);
    Tensors outputs = *tuned.RunAlone(inputs);
    for (size_t o = 0; o < expected.size(); ++o)
      EXPECT_TRUE(SameNumbers(outputs[o], expected[o])) << o;
    // The slice has other strides, and ATen runs it.
    EXPECT_EQ(kernels.runs, aligned ? 3 : 0);
  }
}

MatmulAlgorithm SomeAlgorithm() {
  MatmulAlgorithm algorithm{.words = {}, .workspace = 4096};
  for (uint64_t i = 0; i < algorithm.words.size(); ++i) algorithm.words[i] = ~uint64_t{0} - i;
  return algorithm;
}

TEST(MatmulAlgorithm, IsReadAsPrinted) {
  std::string text = SomeAlgorithm().Print();
  EXPECT_EQ(MatmulAlgorithm::Parse(text), SomeAlgorithm());
  EXPECT_EQ(MatmulAlgorithm::Parse(text.substr(1)), std::nullopt);
  EXPECT_EQ(MatmulAlgorithm::Parse("x" + text.substr(1)), std::nullopt);
  EXPECT_EQ(MatmulAlgorithm::Parse(""), std::nullopt);
  MatmulAlgorithm large = SomeAlgorithm();
  large.workspace = uint64_t{1} << 40;
  EXPECT_EQ(MatmulAlgorithm::Parse(large.Print()), std::nullopt);
}

TEST(MatmulChoices, KeepWhatWasMeasured) {
  TempDir folder;
  MatmulShape shape{.m = 64, .n = 32, .k = 16, .a_transposed = true};
  MatmulChoices choices(folder.path(), "one GPU");
  EXPECT_FALSE(choices.Find(shape));
  ASSERT_TRUE(choices.Store(shape, {12.5, 10.25, SomeAlgorithm()}).ok());
  std::optional<MatmulChoice> found = choices.Find(shape);
  ASSERT_TRUE(found);
  EXPECT_EQ(found->aten_us, 12.5);
  EXPECT_EQ(found->best_us, 10.25);
  EXPECT_EQ(found->algorithm, SomeAlgorithm());
  // Another machine, or another way to store an operand, is measured on its own.
  EXPECT_FALSE(MatmulChoices(folder.path(), "another GPU").Find(shape));
  shape.a_transposed = false;
  EXPECT_FALSE(choices.Find(shape));
  ASSERT_TRUE(choices.Store(shape, {7, 7, std::nullopt}).ok());
  ASSERT_TRUE(choices.Find(shape));
  EXPECT_FALSE(choices.Find(shape)->algorithm);
  EXPECT_FALSE(MatmulChoices("", "one GPU").Store(shape, {}).ok());
}

}  // namespace
}  // namespace heddle::run
