// Runs kernels of groups on a CPU, and compares them with ATen and with one kernel per node.
#include <ATen/ops/_fused_rms_norm.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/view_as_complex.h>
#include <ATen/ops/zeros.h>

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/kernel/element.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/aten/dtype.h"
#include "heddle/run/cuda/nvrtc.h"
#include "heddle/run/runtime/device/same_numbers.h"
#include "heddle/run/runtime/device/test/host_kernels.h"

namespace heddle::run {
namespace {

Module ParsedGroup(const std::string& text) {
  Result<Module> module = ParseModule(text, "test", Ops());
  EXPECT_TRUE(module.ok()) << Format(module.diagnostics());
  return *std::move(module);
}

// Kernels of groups on a CPU.
class HostKernels : public Kernels {
 public:
  std::unique_ptr<LossKernel> Loss(const LossRun&) override { return nullptr; }
  std::unique_ptr<AdamWKernel> AdamW(const AdamWRun&) override { return nullptr; }
  std::unique_ptr<GroupKernel> SquaredNorm() override { return nullptr; }
  std::shared_ptr<const GroupKernel> Matmul(const MatmulShape&) override { return nullptr; }
  std::shared_ptr<const GroupKernel> Program(const KernelProgram& program) override {
    return programs++ == refused_program ? nullptr : MakeHostKernel(program);
  }
  std::shared_ptr<const GroupKernel> NormWeight(int64_t, DType) override { return nullptr; }
  std::shared_ptr<const GroupKernel> IndexAdd(const IndexAddRun&) override { return nullptr; }
  std::shared_ptr<const GroupKernel> Casts(DType) override { return nullptr; }

  int programs = 0;
  // Index of a program that does not compile.
  int refused_program = -1;
  mutable std::vector<std::string> refused;

 protected:
  void Refuse(const std::string& name, std::string_view) const override { refused.push_back(name); }
};

at::Tensor GroupWave(std::span<const Dim> dims, DType dtype, double from) {
  int64_t lanes = IsComplex(dtype) ? 2 : 1;
  for (Dim dim : dims) lanes *= dim;
  at::Tensor wave =
      at::sin(at::linspace(from, from + 1.7 * static_cast<double>(lanes), lanes)).mul(2);
  if (IsComplex(dtype))
    return at::view_as_complex(wave.view({-1, 2})).view({dims.data(), dims.size()});
  return wave.to(ToScalarType(dtype)).view({dims.data(), dims.size()});
}

Tensors InputsOf(const Graph& graph) {
  Tensors inputs;
  for (const Input& input : graph.inputs()) {
    TypeId type = graph.type(input.value);
    inputs.push_back(GroupWave(graph.types().dims(type), graph.types().dtype(type),
                               static_cast<double>(inputs.size())));
  }
  return inputs;
}

// Compares outputs with and without kernels. `proved`: the host computes as ATen does on a CPU;
// otherwise ATen may run the nodes.
void ExpectEqualRuns(const std::string& text, int programs, int refused = -1, bool proved = true) {
  Module module = ParsedGroup(text);
  HostKernels kernels;
  kernels.refused_program = refused;
  RankProgram fused = *RankProgram::Compile(
      module, module.graphs[0],
      {.kernels = [&](const Graph& graph) { return ArrangeKernels(graph, kernels); }});
  EXPECT_EQ(kernels.programs, programs);
  EXPECT_TRUE(kernels.refused.empty() || !proved);
  RankProgram plain = *RankProgram::Compile(module, module.graphs[0]);
  Tensors inputs = InputsOf(module.graphs[0]);
  Tensors expected = *plain.RunAlone(inputs);
  Tensors outputs = *fused.RunAlone(inputs);
  for (size_t o = 0; o < expected.size(); ++o) {
    EXPECT_TRUE(SameNumbers(outputs[o], expected[o])) << o;
    EXPECT_EQ(outputs[o].sizes(), expected[o].sizes()) << o;
  }
}

TEST(GroupStep, RunsElementsWithTheBitsOfAten) {
  // Roundings to bf16 between nodes; a broadcast row, column and number; views.
  ExpectEqualRuns(R"(heddle 1 local
graph @g(%x: bf16[6,32], %y: bf16[6,32], %row: bf16[32], %column: bf16[6,1], %one: bf16[])
    -> (%flat, %e, %wide) {
  %a = aten.add.Tensor(%x, %y)
  %b = aten.mul.Tensor(%a, %row)
  %c = aten.sub.Tensor(%b, %column)
  %d = aten.div.Tensor(%c, %one)
  %flat = aten.view(%d, size=[192])
  %n = aten.neg(%flat)
  %e = aten.mul.Tensor(%n, %flat)
  %wide = aten._to_copy(%e, dtype=f32)
}
)",
                  1);
}

TEST(GroupStep, LeavesOtherLayoutsToAten) {
  Module module = ParsedGroup(R"(heddle 1 local
graph @g(%x: bf16[8,32], %y: bf16[8,32]) -> (%b) {
  %a = aten.add.Tensor(%x, %y)
  %b = aten.mul.Tensor(%a, %y)
}
)");
  HostKernels kernels;
  RankProgram fused = *RankProgram::Compile(
      module, module.graphs[0],
      {.kernels = [&](const Graph& graph) { return ArrangeKernels(graph, kernels); }});
  RankProgram plain = *RankProgram::Compile(module, module.graphs[0]);
  Tensors inputs = InputsOf(module.graphs[0]);
  inputs[0] = inputs[0].t().contiguous().t();
  at::Tensor expected = plain.RunAlone(inputs)->at(0);
  at::Tensor output = fused.RunAlone(inputs)->at(0);
  EXPECT_TRUE(SameNumbers(output, expected));
  EXPECT_EQ(output.strides(), expected.strides());
  EXPECT_TRUE(kernels.refused.empty());
}

TEST(GroupStep, RotatesPairsAsComplexNumbers) {
  ExpectEqualRuns(R"(heddle 1 local
graph @g(%x: bf16[2,4,3,8], %rope: c64[1,4,1,4]) -> (%t) {
  %wide = aten._to_copy(%x, dtype=f32)
  %pairs = aten.view(%wide, size=[2,4,3,4,2])
  %c = aten.view_as_complex(%pairs)
  %m = aten.mul.Tensor(%c, %rope)
  %r = aten.view_as_real(%m)
  %flat = aten.view(%r, size=[2,4,3,8])
  %narrow = aten._to_copy(%flat, dtype=bf16)
  %t = aten.transpose.int(%narrow, dim0=1, dim1=2)
}
)",
                  1, -1, /*proved=*/false);
}

// As in Qwen 3: norms of heads, rotated by halves; and the gradient.
constexpr const char* kTurns = R"(heddle 1 local
graph @g(%q: bf16[2,4,3,128], %w: bf16[128], %cos: bf16[1,4,1,128], %sin: bf16[1,4,1,128],
         %dr: bf16[2,4,3,128], %m: bf16[24,128]) -> (%r, %dx, %p) {
  %y, %rstd = aten._fused_rms_norm(%q, normalized_shape=[128], weight=%w, eps=1e-06)
  %low = aten.slice.Tensor(%y, dim=-1, start=0, end=64)
  %high = aten.slice.Tensor(%y, dim=-1, start=64)
  %minus = aten.neg(%high)
  %turned = aten.cat([%minus, %low], dim=-1)
  %a = aten.mul.Tensor(%y, %cos)
  %b = aten.mul.Tensor(%turned, %sin)
  %r = aten.add.Tensor(%a, %b)
  %flat = aten.view(%r, size=[24,128])
  %m_t = aten.t(%m)
  %p = aten.mm(%m, %m_t)
 bwd:
  %s = aten.mul.Tensor(%dr, %sin)
  %c = aten.mul.Tensor(%dr, %cos)
  %s_low = aten.slice.Tensor(%s, dim=3, start=0, end=64)
  %s_high = aten.slice.Tensor(%s, dim=3, start=64, end=128)
  %s_minus = aten.neg(%s_low)
  %to_high = aten.slice_backward(%s_minus, input_sizes=[2,4,3,128], dim=-1, start=64, end=9223372036854775807, step=1)
  %first = aten.add.Tensor(%c, %to_high)
  %to_low = aten.slice_backward(%s_high, input_sizes=[2,4,3,128], dim=-1, start=0, end=64, step=1)
  %dy = aten.add.Tensor(%first, %to_low)
  %dx, %dw = aten._fused_rms_norm_backward(%dy, %q, %rstd, normalized_shape=[128], weight=%w, output_mask=[true,true])
}
)";

constexpr const char* kSiluAndBack = R"(heddle 1 local
graph @g(%a: bf16[4,64], %b: bf16[4,64], %w: bf16[64,64]) -> (%da, %db, %h) {
  %s = aten.silu(%a)
  %h = aten.mul.Tensor(%s, %b)
  %dh = aten.mm(%h, %w)
  %db = aten.mul.Tensor(%dh, %s)
  %ds = aten.mul.Tensor(%dh, %b)
  %da = aten.silu_backward(%ds, %a)
}
)";

// A rejected group reads a value that it would have recomputed, so another group must store it: its
// program is generated again.
TEST(GroupStep, StoresWhatARefusedGroupReads) {
  std::string text = R"(heddle 1 local
graph @g(%a: bf16[4,64], %b: bf16[4,64], %w: bf16[64,64]) -> (%da, %db, %h) {
  %s = aten.neg(%a)
  %h = aten.mul.Tensor(%s, %b)
  %dh = aten.mm(%h, %w)
  %db = aten.mul.Tensor(%dh, %s)
  %ds = aten.mul.Tensor(%dh, %b)
  %da = aten.mul.Tensor(%ds, %a)
}
)";
  ExpectEqualRuns(text, 2);
  ExpectEqualRuns(text, 3, 1);
}

// Returns the values of a graph, computed by one kernel per group.
std::map<std::string, at::Tensor> RunGroups(const Graph& graph,
                                            const std::vector<KernelGroup>& groups,
                                            const std::vector<std::vector<ValueId>>& stored,
                                            std::map<ValueId, at::Tensor> values) {
  for (size_t g = 0; g < groups.size(); ++g) {
    KernelProgram program = WriteProgram(graph, groups[g], stored[g]);
    Tensors inputs;
    for (ValueId value : program.inputs) inputs.push_back(values.at(SourceOf(graph, value)));
    Tensors outputs;
    for (ValueId value : program.outputs) {
      std::span<const Dim> dims = graph.types().dims(graph.type(value));
      outputs.push_back(at::full({dims.data(), dims.size()}, 7,
                                 ToScalarType(graph.types().dtype(graph.type(value)))));
      values[value] = outputs.back();
    }
    MakeHostKernel(program)->Run(inputs, outputs);
  }
  std::map<std::string, at::Tensor> named;
  for (const auto& [value, tensor] : values) named[std::string(graph.name(value))] = tensor;
  return named;
}

// Two kernels of rows: their rotations have the bits of the nodes, computed from the same norms.
TEST(GroupText, TurnsRowsByHalves) {
  std::string text = kTurns;
  Module module = ParsedGroup(text);
  ArrangedGraph arranged =
      ArrangeForKernels(module.graphs[0], std::vector<bool>(module.graphs[0].node_count()));
  const Graph& graph = arranged.graph;
  ASSERT_EQ(arranged.groups.size(), 2u);
  EXPECT_EQ(arranged.groups[0].nodes.size(), 8u);
  EXPECT_EQ(arranged.groups[1].nodes.size(), 10u);
  std::map<ValueId, at::Tensor> values;
  Tensors inputs = InputsOf(graph);
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].value] = inputs[i];
  std::vector<std::vector<ValueId>> stored = {{}, {}};
  for (const char* name : {"y", "rstd", "r"}) stored[0].push_back(graph.FindValue(name));
  for (const char* name : {"s", "c", "dy", "dx"}) stored[1].push_back(graph.FindValue(name));
  for (unsigned step : {1u, 77u}) {
    HostKernel::step = step;
    std::map<std::string, at::Tensor> got = RunGroups(graph, arranged.groups, stored, values);
    at::Tensor y = got.at("y");
    at::Tensor turned = at::cat({y.slice(3, 64).neg(), y.slice(3, 0, 64)}, 3);
    EXPECT_TRUE(SameNumbers(got.at("r"), y.mul(inputs[2]).add(turned.mul(inputs[3])))) << step;
    at::Tensor s = inputs[4].mul(inputs[3]);
    at::Tensor zeros = at::full({2, 4, 3, 64}, 0, at::kBFloat16);
    at::Tensor dy = inputs[4]
                        .mul(inputs[2])
                        .add(at::cat({zeros, s.slice(3, 0, 64).neg()}, 3))
                        .add(at::cat({s.slice(3, 64), zeros}, 3));
    EXPECT_TRUE(SameNumbers(got.at("dy"), dy)) << step;
  }
  HostKernel::step = 1;
  // With another consumer of a part, ATen runs the nodes.
  text.replace(text.find("%p) {"), 5, "%p, %minus) {");
  Module read = ParsedGroup(text);
  arranged = ArrangeForKernels(read.graphs[0], std::vector<bool>(read.graphs[0].node_count()));
  EXPECT_LT(arranged.groups[0].nodes.size(), 8u);
}

// Runs one kernel for the whole graph, and one per node. All nodes of the graph must be in one
// group.
std::pair<std::map<std::string, at::Tensor>, std::map<std::string, at::Tensor>> FusedAndSingle(
    const Graph& graph) {
  ArrangedGraph arranged = ArrangeForKernels(graph, std::vector<bool>(graph.node_count()));
  EXPECT_EQ(arranged.groups.size(), 1u);
  std::map<ValueId, at::Tensor> values;
  Tensors inputs = InputsOf(graph);
  for (size_t i = 0; i < inputs.size(); ++i) values[graph.inputs()[i].value] = inputs[i];
  std::vector<KernelGroup> single;
  std::vector<std::vector<ValueId>> results;
  std::vector<ValueId> all;
  for (NodeId node : graph.nodes()) {
    bool norm = arranged.groups[0].norm == node;
    single.push_back({norm ? KernelGroup::Form::kRows : KernelGroup::Form::kElements,
                      {node},
                      {},
                      norm ? node : NodeId()});
    results.emplace_back();
    for (ValueId result : graph.results(node)) {
      bool weight = norm && graph[node].op == op::_fused_rms_norm_backward &&
                    result != graph[node].first_result;
      if (weight) continue;
      results.back().push_back(result);
      all.push_back(result);
    }
  }
  return {RunGroups(arranged.graph, arranged.groups, {all}, values),
          RunGroups(graph, single, results, values)};
}

void ExpectSame(const Graph& graph) {
  for (unsigned step : {1u, 77u}) {
    HostKernel::step = step;
    auto [fused, single] = FusedAndSingle(graph);
    ASSERT_EQ(fused.size(), single.size());
    for (const auto& [name, tensor] : single)
      EXPECT_TRUE(SameNumbers(fused.at(name), tensor)) << name << " " << step;
  }
  HostKernel::step = 1;
}

std::string NormText(int64_t width, std::string_view dtype) {
  return fmt::format(R"(heddle 1 local
graph @g(%x: {1}[5,{0}], %r: {1}[5,{0}], %w: {1}[{0}]) -> (%y, %rstd, %h, %z) {{
  %h = aten.add.Tensor(%x, %r)
  %y, %rstd = aten._fused_rms_norm(%h, normalized_shape=[{0}], weight=%w, eps=1e-05)
  %z = aten.mul.Tensor(%y, %r)
}}
)",
                     width, dtype);
}

std::string NormBackwardText(int64_t width, std::string_view dtype) {
  return fmt::format(R"(heddle 1 local
graph @g(%g1: {1}[5,{0}], %g2: {1}[5,{0}], %x: {1}[5,{0}], %rstd: f32[5,1], %w: {1}[{0}],
         %res: {1}[5,{0}]) -> (%out) {{
  %dy = aten.add.Tensor(%g1, %g2)
  %dx, %dw = aten._fused_rms_norm_backward(%dy, %x, %rstd, normalized_shape=[{0}], weight=%w, output_mask=[true,true])
  %out = aten.add.Tensor(%res, %dx)
}}
)",
                     width, dtype);
}

// Widths of one warp and of four, with and without a remainder; the sum has ATen's order.
TEST(GroupText, NormsAddInAtensOrder) {
  for (int64_t width : {64, 776}) {
    Module module = ParsedGroup(NormText(width, "f32"));
    const Graph& graph = module.graphs[0];
    ExpectSame(graph);
    auto [fused, single] = FusedAndSingle(graph);
    at::Tensor h = fused.at("h");
    for (int64_t row = 0; row < 5; ++row) {
      const float* x = h.const_data_ptr<float>() + row * width;
      std::vector<float> chains(128, 0.F);
      for (int64_t t = 0; t < 128; ++t) {
        for (int64_t v = t; v < width / 4; v += 128) {
          for (int64_t j = 4 * v; j < 4 * v + 4; ++j)
            chains[static_cast<size_t>(t)] = std::fmaf(x[j], x[j], chains[static_cast<size_t>(t)]);
        }
      }
      std::array<float, 4> warps{};
      for (size_t w = 0; w < 4; ++w) {
        for (size_t offset = 16; offset > 0; offset /= 2) {
          for (size_t i = 0; i < offset; ++i) chains[32 * w + i] += chains[32 * w + i + offset];
        }
        warps[w] = chains[32 * w];
      }
      float sum = (warps[0] + warps[2]) + (warps[1] + warps[3]);
      float rstd = 1 / std::sqrt(sum / static_cast<float>(width) + 1e-5F);
      EXPECT_EQ(fused.at("rstd").view(-1)[row].item<float>(), rstd) << width << " " << row;
    }
    // Equal up to the order of additions.
    auto [y, rstd] = at::_fused_rms_norm(h, {width}, InputsOf(graph)[2], 1e-5);
    EXPECT_TRUE(at::allclose(fused.at("y"), y, 1e-5, 1e-5));
  }
  ExpectSame(ParsedGroup(NormText(1032, "bf16")).graphs[0]);
}

TEST(GroupText, GradientsOfNormsAreThoseOfSingleNodes) {
  for (int64_t width : {128, 776}) {
    Module module = ParsedGroup(NormBackwardText(width, "f32"));
    ExpectSame(module.graphs[0]);
    auto [fused, single] = FusedAndSingle(module.graphs[0]);
    Tensors in = InputsOf(module.graphs[0]);
    // The same in f64.
    for (at::Tensor& tensor : in) tensor = tensor.to(at::kDouble);
    at::Tensor scaled = in[0].add(in[1]).mul(in[4]);
    at::Tensor normal = in[2].mul(in[3]);
    at::Tensor mean = scaled.mul(normal).mean(-1, /*keepdim=*/true);
    at::Tensor dx = scaled.sub(normal.mul(mean)).mul(in[3]);
    EXPECT_TRUE(at::allclose(fused.at("dx").to(at::kDouble), dx, 1e-3, 1e-3));
  }
  ExpectSame(ParsedGroup(NormBackwardText(2048, "bf16")).graphs[0]);
}

TEST(GroupText, SiluAndItsGradientAreThoseOfSingleNodes) {
  ExpectSame(ParsedGroup(R"(heddle 1 local
graph @g(%a: bf16[4,64], %b: bf16[4,64], %dh: bf16[4,64]) -> (%da, %db) {
  %s = aten.silu(%a)
  %g = aten.sigmoid(%a)
  %db = aten.mul.Tensor(%dh, %s)
  %ds = aten.mul.Tensor(%dh, %b)
  %da = aten.silu_backward(%ds, %a)
}
)")
                 .graphs[0]);
}

TEST(GroupText, WeightGradientsAddInAtensOrder) {
  constexpr int64_t kRows = 512;
  constexpr int64_t kWidth = 64;
  std::string text =
      fmt::format("#define WIDTH {}\n#define ELEMENT u16\n", kWidth) + KernelText("norm_weight");
  HostKernel parts(text, {{"norm_weight_parts", kWidth / 64 * 8, 128}});
  HostKernel sums(text, {{"norm_weight_sums", kWidth / 32, 128}});
  std::array<Dim, 2> dims = {kRows, kWidth};
  Tensors in = {GroupWave(dims, DType::kBF16, 0), GroupWave(dims, DType::kBF16, 5),
                GroupWave(std::span(dims).first(1), DType::kF32, 9)};
  at::Tensor partial = at::full({32, kWidth}, 7, at::kFloat);
  at::Tensor result = at::full({kWidth}, 7, at::kBFloat16);
  parts.numbers = {kRows / 256};
  parts.Run(in, {&partial, 1});
  sums.Run({&partial, 1}, {&result, 1});
  at::Tensor g = in[0].to(at::kFloat);
  at::Tensor x = in[1].to(at::kFloat);
  auto number = [&](const at::Tensor& t, int64_t row, int64_t c) {
    return t.const_data_ptr<float>()[row * kWidth + c];
  };
  at::Tensor expected = at::empty({kWidth}, at::kFloat);
  for (int64_t c = 0; c < kWidth; ++c) {
    std::array<float, 32> chains{};
    for (int64_t row = 0; row < kRows; ++row) {
      float& chain = chains[static_cast<size_t>(row % 256 / 8)];
      chain = std::fmaf(in[2].const_data_ptr<float>()[row], number(g, row, c) * number(x, row, c),
                        chain);
    }
    for (size_t offset = 16; offset > 0; offset /= 2) {
      for (size_t i = 0; i < offset; ++i) chains[i] += chains[i + offset];
    }
    expected.mutable_data_ptr<float>()[c] = chains[0];
  }
  EXPECT_TRUE(SameNumbers(result, expected.to(at::kBFloat16)));
}

TEST(GroupText, WeightGradientsOfManyRowsAddChunks) {
  constexpr int64_t kRows = 5 * 32;
  constexpr int64_t kWidth = 128;
  constexpr int64_t kStored = 2;
  std::string text =
      fmt::format("#define WIDTH {}\n#define ELEMENT u16\n", kWidth) + KernelText("norm_weight");
  HostKernel kernel(text, {{"norm_weight_chunks", kStored * kWidth / 64 / 4, 128}});
  std::array<Dim, 2> dims = {kRows, kWidth};
  Tensors in = {GroupWave(dims, DType::kBF16, 0), GroupWave(dims, DType::kBF16, 5),
                GroupWave(std::span(dims).first(1), DType::kF32, 9)};
  at::Tensor parts = at::full({kStored, kWidth}, 7, at::kBFloat16);
  kernel.numbers = {kRows / 32, kStored};
  kernel.Run(in, {&parts, 1});
  at::Tensor g = in[0].to(at::kFloat);
  at::Tensor x = in[1].to(at::kFloat);
  at::Tensor expected = at::zeros({kStored, kWidth}, at::kFloat);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t c = 0; c < kWidth; ++c) {
      float& sum = expected.mutable_data_ptr<float>()[row / 32 % kStored * kWidth + c];
      sum = std::fmaf(
          in[2].const_data_ptr<float>()[row],
          g.const_data_ptr<float>()[row * kWidth + c] * x.const_data_ptr<float>()[row * kWidth + c],
          sum);
    }
  }
  EXPECT_TRUE(SameNumbers(parts, expected.to(at::kBFloat16)));
}

// The order of _foreach_norm: 4 sums for each of 512 threads, over chunks of 65,536 elements.
float SquaredNormInAtensOrder(const std::vector<float>& x) {
  auto block = [](std::vector<float> sums) {
    for (size_t w = 0; w < 16; ++w) {
      for (size_t offset = 16; offset > 0; offset /= 2) {
        for (size_t i = 0; i < offset; ++i) sums[32 * w + i] += sums[32 * w + i + offset];
      }
    }
    // The sums of 16 warps, and zeros.
    for (size_t offset = 8; offset > 0; offset /= 2) {
      for (size_t i = 0; i < offset; ++i) sums[32 * i] += sums[32 * (i + offset)];
    }
    return sums[0];
  };
  std::vector<float> of_chunks(512, 0.F);
  for (size_t begin = 0; begin < x.size(); begin += 65536) {
    size_t end = std::min(x.size(), begin + 65536);
    std::vector<std::array<float, 4>> parts(512);
    for (size_t e = begin; e < end; ++e) {
      size_t at = e - begin;
      bool vectors = x.size() % 4 == 0;
      float& sum = parts[vectors ? at / 4 % 512 : at % 512][vectors ? at % 4 : at / 512 % 4];
      sum = std::fmaf(x[e], x[e], sum);
    }
    std::vector<float> sums;
    for (const std::array<float, 4>& p : parts) sums.push_back(((p[0] + p[1]) + p[2]) + p[3]);
    of_chunks[begin / 65536 % 512] += block(sums);
  }
  float norm = std::sqrt(block(of_chunks));
  return norm * norm;
}

TEST(GroupText, NormsOfGradientsAddInAtensOrder) {
  // The first argument is a list of two tensors, by value.
  std::string text = "#define ENTRIES 2\n" + KernelText("squared_norm") + R"(
void parts(const void* a, const void* b, float* sums, u64 na, u64 nb, u64 narrow) {
  squared_norm_parts({{{a, na, 0, 0}, {b, nb, (u32)((na + 65535) / 65536), (u32)narrow}}, 2}, sums);
}
void squares(const void* a, const void* b, float* sums, float* out, u64 na, u64 nb, u64 narrow) {
  squared_norm_sums({{{a, na, 0, 0}, {b, nb, (u32)((na + 65535) / 65536), (u32)narrow}}, 2}, sums,
                    out);
}
)";
  for (auto [first, second] : {std::pair<int64_t, int64_t>{70004, 3001}, {5, 65536}}) {
    for (bool narrow : {false, true}) {
      at::Tensor a = GroupWave(std::array<Dim, 1>{first}, DType::kF32, 0);
      at::Tensor b = GroupWave(std::array<Dim, 1>{second}, narrow ? DType::kBF16 : DType::kF32, 3);
      auto chunks = static_cast<unsigned>((first + 65535) / 65536 + (second + 65535) / 65536);
      at::Tensor sums = at::full({chunks}, 7, at::kFloat);
      at::Tensor result = at::full({2}, 7, at::kFloat);
      HostKernel parts(text, {{"parts", chunks, 512}});
      HostKernel squares(text, {{"squares", 2, 512}});
      parts.numbers = squares.numbers = {static_cast<uint64_t>(first),
                                         static_cast<uint64_t>(second), narrow ? 1u : 0u};
      Tensors in = {a, b};
      Tensors out = {sums, result};
      parts.Run(in, {&sums, 1});
      squares.Run(in, out);
      for (size_t i = 0; i < 2; ++i) {
        at::Tensor wide = in[i].to(at::kFloat);
        const float* x = wide.const_data_ptr<float>();
        EXPECT_EQ(result.const_data_ptr<float>()[i], SquaredNormInAtensOrder({x, x + wide.numel()}))
            << first << " " << second << " " << narrow << " " << i;
      }
    }
  }
}

// Every kernel compiles without spilling registers.
TEST(GroupText, CompilesForEveryArchitecture) {
  Result<const Nvrtc*> nvrtc = Nvrtc::Open();
  if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.diagnostics()[0].message;
  EXPECT_FALSE((*nvrtc)->Compile({"not a kernel", "sm_90a", {}}).ok());
  std::vector<std::pair<std::string, std::vector<std::string>>> texts = {
      {KernelText("adamw"), {"-DENTRIES=72", "-DCLIP=1", "-DDECAY=1"}},
      {KernelText("adamw"), {"-DENTRIES=72", "-DCLIP=0", "-DDECAY=0"}},
      {KernelText("casts"), {"-DENTRIES=120", "-DWIDEN=1"}},
      {KernelText("casts"), {"-DENTRIES=120", "-DWIDEN=0"}},
      {KernelText("fill"), {}},
      {KernelText("index_add"), {"-DWIDTH=2048", "-DBLOCK=128", "-DZERO=1", "-DELEMENT=u16"}},
      {KernelText("index_add"), {"-DWIDTH=7168", "-DBLOCK=256", "-DZERO=0", "-DELEMENT=float"}},
      {KernelText("loss"), {"-DCOLUMNS=32000", "-DBLOCKS=1", "-DKEEP=1", "-DRESIDENT=1"}},
      {KernelText("loss"), {"-DCOLUMNS=32000", "-DBLOCKS=1", "-DKEEP=0", "-DRESIDENT=2"}},
      {KernelText("loss"), {"-DCOLUMNS=64000", "-DBLOCKS=2", "-DKEEP=1", "-DRESIDENT=4"}},
      {KernelText("loss"), {"-DCOLUMNS=128256", "-DBLOCKS=4", "-DKEEP=1", "-DRESIDENT=3"}},
      {KernelText("squared_norm"), {"-DENTRIES=160"}},
      {KernelText("norm_weight"), {"-DWIDTH=768", "-DELEMENT=u16"}},
      {KernelText("norm_weight"), {"-DWIDTH=64", "-DELEMENT=float"}}};
  for (const std::string& graph :
       {NormText(768, "bf16"), NormText(8192, "bf16"), NormText(64, "f32"),
        NormBackwardText(4096, "bf16"), NormBackwardText(768, "f32"), std::string(kSiluAndBack),
        std::string(kTurns)}) {
    Module module = ParsedGroup(graph);
    ArrangedGraph arranged =
        ArrangeForKernels(module.graphs[0], std::vector<bool>(module.graphs[0].node_count()));
    for (size_t g = 0; g < arranged.groups.size(); ++g) {
      std::vector<ValueId> stored =
          EscapingValues(arranged.graph, Uses(arranged.graph), arranged.groups, g);
      texts.emplace_back(ProgramText(WriteProgram(arranged.graph, arranged.groups[g], stored).text),
                         std::vector<std::string>{});
    }
  }
  for (std::string architecture : {"sm_80", "sm_90a", "sm_100a"}) {
    for (const auto& [text, defines] : texts) {
      // Clusters of blocks exist from Hopper on.
      bool cluster = std::ranges::any_of(defines, [](const std::string& define) {
        return define.starts_with("-DBLOCKS=") && define != "-DBLOCKS=1";
      });
      if (cluster && architecture == "sm_80") continue;
      std::vector<std::string> options = defines;
      options.emplace_back("--ptxas-options=-v");
      std::string log;
      Result<std::string> cubin = (*nvrtc)->Compile({text, architecture, options}, &log);
      ASSERT_TRUE(cubin.ok()) << Format(cubin.diagnostics()) << text;
      // Finds `0 bytes spill stores` for each function.
      size_t functions = 0;
      for (size_t at = log.find(" bytes spill stores"); at != std::string::npos;
           at = log.find(" bytes spill stores", at + 1), ++functions)
        EXPECT_EQ(log.substr(at - 2, 2), " 0") << architecture << log << text;
      EXPECT_GT(functions, 0u) << log;
    }
  }
}

}  // namespace
}  // namespace heddle::run
