// A run with kernels takes as much memory from its allocator as kernel_memory.h predicts.
#include <gtest/gtest.h>

#include <random>

#include <ATen/ops/full.h>
#include <c10/core/CPUAllocator.h>

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/kernel/kernel_memory.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/runtime/device/kernel_backend.h"
#include "heddle/run/runtime/rank_program.h"

namespace heddle::run {
namespace {

// Counts the bytes of tensors that exist, while it is the allocator of the CPU.
class CountingAllocator final : public c10::Allocator {
 public:
  CountingAllocator() : plain_(*c10::GetCPUAllocator()) { c10::SetCPUAllocator(this, kPriority); }
  ~CountingAllocator() override { c10::SetCPUAllocator(&plain_, kPriority); }
  CountingAllocator(const CountingAllocator&) = delete;
  CountingAllocator& operator=(const CountingAllocator&) = delete;

  c10::DataPtr allocate(size_t bytes) override {
    auto* block = new Block{this, static_cast<int64_t>(bytes), plain_.allocate(bytes)};
    live += block->bytes;
    peak = std::max(peak, live);
    return {block->data.get(), block, &Free, c10::Device(c10::kCPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* to, const void* from, size_t bytes) const override {
    default_copy_data(to, from, bytes);
  }

  int64_t live = 0;
  int64_t peak = 0;

 private:
  static constexpr uint8_t kPriority = 255;
  struct Block {
    CountingAllocator* of;
    int64_t bytes;
    c10::DataPtr data;
  };
  static void Free(void* context) {
    auto* block = static_cast<Block*>(context);
    block->of->live -= block->bytes;
    delete block;
  }

  c10::Allocator& plain_;
};

// Kernels that compute nothing, for every group.
class IdleKernels : public Kernels {
 public:
  class Idle : public GroupKernel {
   public:
    void Run(std::span<const at::Tensor>, std::span<const at::Tensor>) const override {}
  };
  class IdleUpdates : public AdamWKernel {
   public:
    void Run(std::span<const Update>, const at::Tensor&, const at::Tensor&,
             const at::Tensor&) const override {}
  };
  std::unique_ptr<LossKernel> Loss(const LossRun&) override { return nullptr; }
  std::unique_ptr<AdamWKernel> AdamW(const AdamWRun&) override {
    return std::make_unique<IdleUpdates>();
  }
  std::unique_ptr<GroupKernel> SquaredNorm() override { return std::make_unique<Idle>(); }
  std::shared_ptr<const GroupKernel> Matmul(const MatmulShape&) override { return nullptr; }
  std::shared_ptr<const GroupKernel> Program(const KernelProgram&) override { return idle_; }
  std::shared_ptr<const GroupKernel> NormWeight(int64_t, DType) override { return idle_; }
  std::shared_ptr<const GroupKernel> IndexAdd(const IndexAddRun&) override { return nullptr; }
  std::shared_ptr<const GroupKernel> Casts(DType) override { return idle_; }
  bool IsProved(const std::string&, const std::string&, const std::function<bool()>&) override {
    return true;
  }

 protected:
  void Refuse(const std::string& name, std::string_view why) const override {
    ADD_FAILURE() << name << ": " << why;
  }

 private:
  std::shared_ptr<const GroupKernel> idle_ = std::make_shared<Idle>();
};

// Writes random graphs of elementwise ops, norms and their gradients, products, casts and views.
// Some end with updates of parameters, whose casts they read.
class GraphWriter {
 public:
  explicit GraphWriter(uint32_t seed) : random_(seed) {}

  std::string Write() {
    updates_ = Pick(2) == 0;
    int64_t params = updates_ ? 2 + Pick(2) : 0;
    for (int64_t p = 0; p < params; ++p) {
      AddInput(fmt::format("p{}", p), kWidth, false, fmt::format(" param {} \"p{}\"", p, p));
      for (std::string_view kind : {"exp_avg", "exp_avg_sq"})
        AddInput(fmt::format("{}{}", kind, p), kWidth, false,
                 fmt::format(" opt {} \"{}\"", p, kind));
    }
    for (int64_t i = 0; i < 3; ++i)
      values_.push_back(AddInput(fmt::format("x{}", i), Rows(), Pick(2) == 0,
                                 updates_ ? fmt::format(" batch \"x{}\"", i) : ""));
    if (updates_) inputs_ += ", %lr: f32[] hyper \"lr\", %step: f32[] hyper \"step\"";
    for (int64_t p = 0; p < params; ++p) values_.push_back(Cast({fmt::format("p{}", p), kWidth}));
    size_t nodes = 10 + static_cast<size_t>(Pick(30));
    for (size_t n = 0; n < nodes; ++n) {
      if (updates_ && n == nodes / 2) body_ += " bwd:\n";
      values_.push_back(AddNode());
    }
    std::string outputs =
        fmt::format("{}%{}", updates_ ? "metric \"out\" " : "", values_.back().name);
    if (updates_) WriteUpdates(params, outputs);
    return fmt::format("heddle 1 local\ngraph @g({}) -> ({}) {{\n{}}}\n", inputs_, outputs, body_);
  }

 private:
  static constexpr int64_t kWidth = 64;
  // A matrix of kWidth columns.
  struct Matrix {
    std::string name;
    int64_t rows = 0;
    bool narrow = false;
  };

  int64_t Pick(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(n)); }
  int64_t Rows() { return Pick(3) == 0 ? 16 : kWidth; }
  const Matrix& Any() {
    return values_[static_cast<size_t>(Pick(static_cast<int64_t>(values_.size())))];
  }
  // Returns a value of a type, or casts and adds until there is one.
  Matrix Like(const Matrix& type) {
    for (int i = 0; i < 8; ++i) {
      const Matrix& other = Any();
      if (other.rows == type.rows && other.narrow == type.narrow) return other;
    }
    return type;
  }

  Matrix AddInput(std::string name, int64_t rows, bool narrow, const std::string& role) {
    inputs_ += fmt::format("{}%{}: {}[{},{}]{}", inputs_.empty() ? "" : ", ", name,
                           narrow ? "bf16" : "f32", rows, kWidth, role);
    return {std::move(name), rows, narrow};
  }
  std::string Name() { return fmt::format("v{}", count_++); }
  Matrix Cast(const Matrix& from) {
    Matrix to{Name(), from.rows, !from.narrow};
    body_ += fmt::format("  %{} = aten._to_copy(%{}, dtype={})\n", to.name, from.name,
                         to.narrow ? "bf16" : "f32");
    return to;
  }

  Matrix AddNode() {
    Matrix a = Any();
    Matrix b = Like(a);
    Matrix result{Name(), a.rows, a.narrow};
    switch (Pick(9)) {
      case 0: return Cast(a);
      case 1: {
        // Views of views.
        body_ += fmt::format(
            "  %{0}f = aten.view(%{1}, size=[{2}])\n  %{0} = aten.view(%{0}f, size=[{3},{4}])\n",
            result.name, a.name, a.rows * kWidth, a.rows, kWidth);
        return result;
      }
      case 2:
        if (a.narrow || a.rows != kWidth) break;
        body_ += fmt::format("  %{0}t = aten.t(%{1})\n  %{0} = aten.mm(%{0}t, %{2})\n", result.name,
                             a.name, b.name);
        return result;
      case 3:
        body_ += fmt::format(
            "  %{0}w = aten.select.int(%{1}, dim=0, index=1)\n"
            "  %{0}, %{0}r = aten._fused_rms_norm(%{1}, normalized_shape=[{2}], weight=%{0}w, "
            "eps=1e-05)\n",
            result.name, a.name, kWidth);
        return result;
      case 4: {
        body_ += fmt::format("  %{} = aten.silu(%{})\n", result.name, a.name);
        return result;
      }
      default: break;
    }
    body_ += fmt::format("  %{} = aten.{}.Tensor(%{}, %{})\n", result.name,
                         Pick(2) == 0 ? "add" : "mul", a.name, b.name);
    return result;
  }

  // The gradients are products, so that they are not part of a group.
  void WriteUpdates(int64_t params, std::string& outputs) {
    for (int64_t p = 0; p < params; ++p) {
      Matrix a = Any();
      if (a.narrow) a = Cast(a);
      body_ += fmt::format("  %gt{0} = aten.t(%{1})\n  %g{0} = aten.mm(%gt{0}, %{1})\n", p, a.name);
    }
    body_ += " opt:\n";
    for (int64_t p = 0; p < params; ++p) {
      body_ += fmt::format(
          "  %np{0}, %ng{0}, %na{0}, %ns{0} = aten._fused_adamw.tensor_lr([%p{0}], [%g{0}], "
          "[%exp_avg{0}], [%exp_avg_sq{0}], [], [%step], %lr, beta1=0.9, beta2=0.95, "
          "weight_decay=0.1, eps=1e-8, amsgrad=false, maximize=false)\n",
          p);
      outputs += fmt::format(
          ", update %p{0} -> %np{0}, update %exp_avg{0} -> %na{0}, update %exp_avg_sq{0} -> %ns{0}",
          p);
    }
  }

  std::mt19937 random_;
  bool updates_ = false;
  std::string inputs_;
  std::string body_;
  std::vector<Matrix> values_;
  int64_t count_ = 0;
};

// The bytes that a run allocates in addition to inputs and copies.
int64_t AllocatedBytes(const Module& module) {
  const Graph& graph = module.graphs[0];
  IdleKernels kernels;
  auto copies = std::make_shared<WeightCopies>();
  RankProgram program = *RankProgram::Compile(module, graph, {.kernels = [&](const Graph& g) {
                                                return ArrangeKernels(g, kernels, copies);
                                              }});
  Tensors inputs;
  for (const Input& input : graph.inputs()) {
    TypeId type = graph.type(input.value);
    std::span<const Dim> dims = graph.types().dims(type);
    inputs.push_back(
        at::full({dims.data(), dims.size()}, 1, ToScalarType(graph.types().dtype(type))));
  }
  copies->of_rank.resize(1);
  for (int64_t param : *copies->params)
    copies->of_rank[0][param] =
        inputs[static_cast<size_t>(graph.FindParam(param)->value.index())].to(at::kBFloat16);
  CountingAllocator allocator;
  Result<Tensors> outputs = program.RunAlone(inputs);
  EXPECT_TRUE(outputs.ok());
  return allocator.peak;
}

TEST(KernelMemory, IsWhatRandomGraphsAllocate) {
  size_t with_copies = 0;
  for (uint32_t seed = 0; seed < 300; ++seed) {
    std::string text = GraphWriter(seed).Write();
    Result<Module> module = ParseModule(text, "test", Ops());
    ASSERT_TRUE(module.ok()) << Format(module.diagnostics()) << text;
    KernelMemory memory = MemoryWithKernels(module->graphs[0]);
    with_copies += memory.copied.empty() ? 0 : 1;
    EXPECT_EQ(AllocatedBytes(*module), (memory.peak - memory.inputs - memory.copies).value)
        << "seed " << seed << "\n"
        << text;
  }
  EXPECT_GT(with_copies, 20u);
}

}  // namespace
}  // namespace heddle::run
