// Tests of sums, nested splits, memory and errors.
#include "heddle/run/runtime/rank_program.h"

#include <gtest/gtest.h>

#include <ATen/Context.h>
#include <ATen/TensorOperators.h>
#include <ATen/core/Generator.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/tensor.h>

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/text/parse.h"
#include "heddle/core/ops/ops.h"

namespace heddle::run {
namespace {

Module Parsed(const std::string& text) {
  Result<Module> module = ParseModule(text, "test", Ops());
  EXPECT_TRUE(module.ok()) << text << Format(module.diagnostics());
  return module.ok() ? *module : Module();
}

RankProgram Compile(const std::string& text) {
  Module module = Parsed(text);
  return *RankProgram::Compile(module, module.graphs[0]);
}

std::vector<Tensors> RunProgramText(const std::string& text, const std::vector<Tensors>& inputs) {
  Result<std::vector<Tensors>> outputs = Compile(text).Run(inputs);
  EXPECT_TRUE(outputs.ok()) << Format(outputs.diagnostics());
  return *outputs;
}

std::string Fault(const std::string& text, const std::vector<Tensors>& inputs) {
  Result<std::vector<Tensors>> outputs = Compile(text).Run(inputs);
  EXPECT_FALSE(outputs.ok());
  if (outputs.ok()) return "";
  EXPECT_EQ(outputs.diagnostics()[0].kind, Diag::kRunFault);
  return outputs.diagnostics()[0].message;
}

TEST(RankProgram, SumsGoFromRankToRankInTheElementType) {
  // r0 + r1 + r2 + r3, or r0 + r2 + r1 + r3: adding 1 is lost to 1e8 in f32, and to 512 in bf16.
  for (auto [dtype, big] : {std::pair{at::kFloat, 1e8}, {at::kBFloat16, 512.0}}) {
    std::vector<Tensors> inputs;
    for (double value : {big, 1.0, -big, 1.0}) inputs.push_back({at::full({2}, value, dtype)});
    auto sum = [&, name = dtype == at::kFloat ? "f32" : "bf16"](std::string_view over) {
      std::vector<Tensors> outputs = RunProgramText(
          fmt::format("heddle 1 local\nmesh [dp=2, tp=2]\ngraph @g(%x: {0}[2]) -> (%a, %b) {{\n"
                      "  %g! = comm.all_reduce(%x, over=[{1}], why=norm)\n"
                      "  %a = comm.wait(%g!)\n"
                      "  %h! = comm.reduce_scatter(%x, over=[{1}], why=grad)\n"
                      "  %b = comm.wait(%h!)\n}}\n",
                      name, over),
          inputs);
      // Only two of four ranks get one of two elements.
      EXPECT_TRUE(outputs[0][1].equal(outputs[0][0].narrow(0, 0, 1)));
      EXPECT_EQ(outputs[3][0].scalar_type(), dtype);
      return outputs[3][0][0].item<double>();
    };
    EXPECT_EQ(sum("dp,tp"), 1.0);
    EXPECT_EQ(sum("tp,dp"), 2.0);
  }
}

TEST(RankProgram, AChunkIsCutFurtherAndPutTogetherAgain) {
  // dp splits 5 into 3 and 2, and tp splits each: 2, 1, 1, 1.
  const char* text =
      "heddle 1 local\nmesh [dp=2, tp=2]\ngraph @g(%x: f32[5{dp}]) -> (%s, %a, %b) {\n"
      "  %s = shard.slice(%x, over=[tp])                          : f32[5{dp,tp}]\n"
      "  %g! = comm.reduce_scatter(%x, over=[tp], why=grad)       : async f32[5{dp,tp}]\n"
      "  %r = comm.wait(%g!)\n"
      "  %h! = comm.all_gather(%r, over=[tp], why=unshard)        : async f32[5{dp}]\n"
      "  %a = comm.wait(%h!)\n"
      "  %i! = comm.all_gather(%s, over=[dp,tp], why=unshard)     : async f32[5]\n"
      "  %b = comm.wait(%i!)\n}\n";
  at::Tensor x = at::arange(5, at::kFloat);
  at::Tensor parts[] = {x.narrow(0, 0, 3), x.narrow(0, 3, 2)};
  std::vector<Tensors> outputs =
      RunProgramText(text, {{parts[0]}, {parts[0]}, {parts[1]}, {parts[1]}});
  std::vector<std::vector<float>> slices{{0, 1}, {2}, {3}, {4}};
  for (size_t rank = 0; rank < 4; ++rank) {
    EXPECT_TRUE(outputs[rank][0].equal(at::tensor(slices[rank])));
    EXPECT_TRUE(outputs[rank][1].equal(parts[rank / 2] * 2));
    EXPECT_TRUE(outputs[rank][2].equal(x));
  }
}

TEST(RankProgram, OneRankNeedsNoMesh) {
  Module module = Parsed(
      "heddle 1 local\ngraph @g(%x: f32[4,4]) -> (%y, %b) {\n"
      "  %o! = mem.offload(%x)\n  %h = comm.wait(%o!)\n"
      "  %r! = mem.reload(%h)\n  %b = comm.wait(%r!)\n"
      "  %y = aten.mm(%b, %x)\n}\n");
  Tensors inputs{at::arange(16, at::kFloat).view({4, 4})};
  Tensors outputs = *RankProgram::Compile(module, module.graphs[0])->RunAlone(inputs);
  EXPECT_TRUE(outputs[0].equal(at::mm(inputs[0], inputs[0])));
  EXPECT_TRUE(outputs[1].equal(inputs[0]));
}

// Stands for a transport between processes, whose launches take time.
class NoLaunches : public Transport {
 public:
  std::unique_ptr<Pending> Start(NodeId, CommunicatorId, const Collective&,
                                 std::span<const int64_t>, std::vector<Tensors>,
                                 std::span<const Shares>) override {
    return nullptr;
  }
  bool finishes_at_once() const override { return false; }
};

TEST(RankProgram, AWaitForAMoveNeedsNoTransport) {
  Module module = Parsed(
      "heddle 1 local\nmesh [dp=2]\ngraph @g(%x: f32[4]) -> (%b) {\n"
      "  %o! = mem.offload(%x)\n  %h = comm.wait(%o!)\n"
      "  %r! = mem.reload(%h)\n  %b = comm.wait(%r!)\n}\n");
  Tensors inputs{at::arange(4, at::kFloat)};
  RankProgram program = *RankProgram::Compile(
      module, module.graphs[0], {.ranks = {1}, .transport = std::make_shared<NoLaunches>()});
  Result<std::vector<Tensors>> outputs = program.Run({&inputs, 1});
  ASSERT_TRUE(outputs.ok()) << Format(outputs.diagnostics());
  EXPECT_TRUE((*outputs)[0][0].equal(inputs[0]));
}

TEST(SlotPlan, LetsGoOfAValueWhenItsStorageDies) {
  Module module = Parsed(
      "heddle 1 local\nmesh [dp=2]\ngraph @g(%x: f32[4]) -> (%b, %w) {\n"
      "  %a = aten.neg(%x)\n"
      "  %g! = comm.all_reduce(%a, %x, over=[dp], why=norm)\n"
      "  %v, %w = comm.wait(%g!)\n"
      "  %b = aten.neg(%a)\n}\n");
  SlotPlan plan(module.graphs[0], Liveness(module.graphs[0]));
  Tensors values = plan.Start(Tensors{at::ones({4})});
  // Slots: x, a, two of g, v, w, b.
  ASSERT_EQ(values.size(), 7u);
  auto live = [&] {
    std::string flags;
    for (const at::Tensor& t : values) flags += t.defined() ? '1' : '0';
    return flags;
  };
  // The caller owns x. A wait returns the storage that its collective wrote.
  std::vector<std::string> expected{"1100000", "1111000", "1101010", "1001011"};
  for (NodeId id : module.graphs[0].nodes()) {
    EXPECT_EQ(plan.Operands(id, values).size(), id == NodeId(1) || id == NodeId(2) ? 2u : 1u);
    Tensors results(plan.result_count(id), at::ones({4}));
    plan.Store(id, results, values);
    plan.Release(id, values);
    EXPECT_EQ(live(), expected[id.index()]) << id.index();
  }
  EXPECT_EQ(plan.Outputs(values).size(), 2u);
}

TEST(RankProgram, FaultsNameTheRankAndTheNode) {
  const char* text =
      "heddle 1 local\nmesh [dp=2]\ngraph @g(%w: f32[4,2], %i: i64[3]) -> (%y) {\n"
      "  %y = aten.index_select(%w, %i, dim=0)\n}\n";
  Tensors good{at::ones({4, 2}), at::arange(3)};
  Tensors bad{at::ones({4, 2}), at::arange(3) + 2};
  EXPECT_EQ(Fault(text, {good, bad}),
            "rank 1: node 0 failed: index out of range in self\n"
            "  %y = aten.index_select(%w, %i, dim=0)                       : f32[3,2]\n"
            "  operand 0 of rank 1: Float[4,2] on cpu\n"
            "  operand 1 of rank 1: Long[3] on cpu");
}

TEST(RankProgram, FaultsOfOneRankAloneNameNoRank) {
  const char* text =
      "heddle 1 local\ngraph @g(%w: f32[4,2], %i: i64[3]) -> (%y) {\n"
      "  %y = aten.index_select(%w, %i, dim=0)\n}\n";
  EXPECT_EQ(Fault(text, {{at::ones({4, 2}), at::arange(3) + 2}}),
            "node 0 failed: index out of range in self\n"
            "  %y = aten.index_select(%w, %i, dim=0)                       : f32[3,2]\n"
            "  operand 0: Float[4,2] on cpu\n"
            "  operand 1: Long[3] on cpu");
  EXPECT_EQ(Fault(text, {{at::ones({3, 2}), at::arange(3)}}),
            "input `%w` is Float[3,2] on cpu, but the graph expects f32[4,2]");
}

TEST(RankProgram, FaultsOfACollectiveNameAllItsRanks) {
  const char* text =
      "heddle 1 local\nmesh [dp=2, tp=2]\ngraph @g(%x: f32[t0<=4]) -> (%y) {\n"
      "  %g! = comm.all_reduce(%x, over=[dp], why=norm)\n  %y = comm.wait(%g!)\n}\n";
  EXPECT_EQ(Fault(text, {{at::ones({4})}, {at::ones({1})}, {at::ones({4})}, {at::ones({2})}}),
            "ranks 1, 3: node 0 failed: sizes [2] and [1] of one group differ\n"
            "  %g! = comm.all_reduce(%x, over=[dp], why=norm)              : async f32[t0<=4]\n"
            "  operand 0 of rank 1: Float[1] on cpu\n"
            "  operand 0 of rank 3: Float[2] on cpu");
}

TEST(RankProgram, InputsHaveTheSizesOfTheirRank) {
  const char* text =
      "heddle 1 local\nmesh [dp=2]\ngraph @g(%x: f32[5{dp}]) -> (%y) {\n  %y = aten.neg(%x)\n}\n";
  EXPECT_EQ(Fault(text, {{at::ones({3})}, {at::ones({3})}}),
            "rank 1: input `%x` is Float[3] on cpu, but the graph expects f32[5{dp}]");
  EXPECT_EQ(Fault(text, {{at::ones({3}, at::kDouble)}, {at::ones({2})}}),
            "rank 0: input `%x` is Double[3] on cpu, but the graph expects f32[5{dp}]");
}

// Ranks do not wait for each other between collectives, but draw random numbers in rank order.
TEST(RankProgram, AnyNumberOfThreadsGivesTheSameBits) {
  Module module = Parsed(
      "heddle 1 local\nmesh [dp=5]\ngraph @g(%x: f32[64]) -> (%c, %d) {\n"
      "  %a = aten.rand_like(%x)\n"
      "  %b = aten.mul.Tensor(%a, %x)\n"
      "  %g! = comm.all_reduce(%b, over=[dp], why=norm)\n"
      "  %s = aten.sin(%b)\n"
      "  %c = comm.wait(%g!)\n"
      "  %d = aten.mul.Tensor(%c, %s)\n}\n");
  std::vector<Tensors> inputs;
  for (int rank = 0; rank < 5; ++rank) inputs.push_back({at::arange(64, at::kFloat) + rank});
  std::vector<Tensors> expected;
  for (int64_t threads : {1, 2, 3, 5, 8}) {
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
    generator.set_current_seed(7);
    RankProgram program = *RankProgram::Compile(module, module.graphs[0], {.threads = threads});
    std::vector<Tensors> outputs = *program.Run(inputs);
    if (threads == 1) expected = outputs;
    for (size_t rank = 0; rank < 5; ++rank) {
      for (size_t i = 0; i < 2; ++i)
        EXPECT_TRUE(outputs[rank][i].equal(expected[rank][i])) << threads << " threads";
    }
  }
}

TEST(RankProgram, OnThreadsTheSameFaultCountsAsInTurn) {
  const char* text =
      "heddle 1 local\nmesh [dp=4]\ngraph @g(%w: f32[4,2], %i: i64[3]) -> (%z) {\n"
      "  %y = aten.index_select(%w, %i, dim=0)\n"
      "  %g! = comm.all_reduce(%y, over=[dp], why=norm)\n  %z = comm.wait(%g!)\n}\n";
  Tensors good{at::ones({4, 2}), at::arange(3)};
  Tensors bad{at::ones({4, 2}), at::arange(3) + 2};
  std::vector<Tensors> inputs = {good, good, bad, bad};
  Module module = Parsed(text);
  Result<std::vector<Tensors>> outputs =
      RankProgram::Compile(module, module.graphs[0], {.threads = 4})->Run(inputs);
  ASSERT_FALSE(outputs.ok());
  EXPECT_EQ(outputs.diagnostics()[0].message, Fault(text, inputs));
}

TEST(RankProgram, RunsLocalGraphsOnly) {
  Module module = Parsed("heddle 1 global\nmesh [dp=2]\ngraph @g(%x: f32[4{dp}]) -> (%x) {\n}\n");
  Result<RankProgram> program = RankProgram::Compile(module, module.graphs[0]);
  ASSERT_FALSE(program.ok());
  EXPECT_EQ(program.diagnostics()[0].message,
            "@g is global, on 2 ranks, but only local graphs can run on ranks");
}

}  // namespace
}  // namespace heddle::run
