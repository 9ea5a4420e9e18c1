// Tests of the runs that kernels replace, of the steps that run them, and of the kernels' text on a
// CPU.
#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <ATen/ops/linspace.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tensor.h>

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/kernel/kernel_memory.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/runtime/device/kernel_backend.h"
#include "heddle/run/runtime/device/own_kernels.h"
#include "heddle/run/runtime/device/test/aten_kernels.h"
#include "heddle/run/runtime/rank_program.h"

namespace heddle::run {
namespace {

Module Parsed(const std::string& text) {
  Result<Module> module = ParseModule(text, "test", Ops());
  EXPECT_TRUE(module.ok()) << Format(module.diagnostics());
  return *std::move(module);
}

std::string Replaced(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

// As captured: the gradient's scale depends on the labels, and on the shape of the loss.
constexpr const char* kLoss = R"(heddle 1 local
graph @g(%x: bf16[2,3,16], %y: bf16[2,3,16], %labels: i64[2,3]) -> (%div, %grad, %count) {
  %logits = aten.add.Tensor(%x, %y)
  %wide = aten._to_copy(%logits, dtype=f32)
  %rows = aten.view(%wide, size=[6,16])
  %targets = aten.view(%labels, size=[6])
  %logp = aten._log_softmax(%rows, dim=1, half_to_float=false)
  %sum, %weight = aten.nll_loss_forward(%logp, %targets, reduction=2, ignore_index=-100)
  %ne = aten.ne.Scalar(%labels, other=-100)
  %count = aten.sum(%ne)
  %div = aten.div.Tensor(%sum, %count)
  %one = aten.ones_like(%div)
  %scale = aten.div.Tensor(%one, %count)
  %nll = aten.nll_loss_backward(%scale, %logp, %targets, %weight, reduction=2, ignore_index=-100)
  %back = aten._log_softmax_backward_data(%nll, %logp, dim=1, input_dtype=f32)
  %shaped = aten.view(%back, size=[2,3,16])
  %grad = aten._to_copy(%shaped, dtype=bf16)
}
)";

constexpr const char* kUpdates = R"(heddle 1 local
graph @g(%a: f32[4,6], %b: f32[5], %am: f32[4,6], %bm: f32[5], %av: f32[4,6], %bv: f32[5],
         %ag: f32[4,6], %bg: f32[5], %lr: f32[], %step: f32[], %norm: f32[])
    -> (update %a -> %a2, update %b -> %b2, update %am -> %am2, update %bm -> %bm2,
        update %av -> %av2, update %bv -> %bv2) {
  %clip = aten.clamp(%norm, max=1.0)
  %ac = aten.mul.Tensor(%ag, %clip)
  %a2, %ag2, %am2, %av2 = aten._fused_adamw.tensor_lr([%a], [%ac], [%am], [%av], [], [%step], %lr, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=false, maximize=false)
  %bc = aten.mul.Tensor(%bg, %clip)
  %b2, %bg2, %bm2, %bv2 = aten._fused_adamw.tensor_lr([%b], [%bc], [%bm], [%bv], [], [%step], %lr, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=false, maximize=false)
}
)";

// Returns the run of a loss in a text, after its nodes became neighbours.
std::optional<LossRun> LossOf(const std::string& text) {
  Module module = Parsed(text);
  const Graph graph = GatherLosses(std::move(module.graphs[0]));
  for (NodeId node : graph.nodes()) {
    if (auto run = FindLossRun(graph, Uses(graph), Liveness(graph), node)) return run;
  }
  return std::nullopt;
}

TEST(LossRun, IsFoundAroundOtherNodes) {
  std::optional<LossRun> run = LossOf(kLoss);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->count, 8u);
  EXPECT_EQ(run->rows, 6);
  EXPECT_EQ(run->columns, 16);
  EXPECT_EQ(run->ignored, -100);
  EXPECT_TRUE(run->in_place);
}

// As planned for two ranks: the number of tokens is added before the loss, the loss after it.
const std::string kLossOfTwoRanks = Replaced(
    Replaced(Replaced(kLoss, "local\n", "local\nmesh [dp=2]\n"), "  %count = aten.sum(%ne)\n",
             "  %own = aten.sum(%ne)\n"
             "  %count! = comm.all_reduce(%own, over=[dp], why=loss)\n"
             "  %count = comm.wait(%count!)\n"),
    "  %one = aten.ones_like(%div)\n",
    "  %mean! = comm.all_reduce(%div, over=[dp], why=loss)\n"
    "  %mean = comm.wait(%mean!)\n"
    "  %one = aten.ones_like(%mean)\n");

TEST(LossRun, IsFoundAroundCollectives) {
  Module module = Parsed(kLossOfTwoRanks);
  Graph graph = GatherLosses(module.graphs[0]);
  std::string order;
  for (NodeId node : graph.nodes())
    order += std::string(graph.name(graph[node].first_result)) + " ";
  EXPECT_EQ(order,
            "logits targets ne own count! count one scale wide rows logp sum nll back shaped grad "
            "div mean! mean ");
  std::optional<LossRun> run = LossOf(kLossOfTwoRanks);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->count, 8u);
  // The launches of a communicator would change places.
  std::string swapped =
      Replaced(Replaced(kLossOfTwoRanks, "  %div = aten.div.Tensor(%sum, %count)\n", ""),
               "  %own = aten.sum(%ne)\n",
               "  %total! = comm.all_reduce(%sum, over=[dp], why=loss)\n"
               "  %total = comm.wait(%total!)\n"
               "  %own = aten.sum(%ne)\n");
  swapped = Replaced(swapped, "comm.all_reduce(%div", "comm.all_reduce(%count");
  swapped = Replaced(swapped, "(%div, %grad", "(%total, %grad");
  EXPECT_FALSE(LossOf(swapped));
}

TEST(LossRun, LeavesLogitsThatAreNeeded) {
  EXPECT_FALSE(LossOf(Replaced(kLoss, "%grad, %count)", "%grad, %logits)"))->in_place);
  // The logits belong to the caller.
  EXPECT_FALSE(LossOf(Replaced(Replaced(kLoss, "  %logits = aten.add.Tensor(%x, %y)\n", ""),
                               "_to_copy(%logits", "_to_copy(%x"))
                   ->in_place);
}

// Ranks of one process share the result of a gather.
TEST(LossRun, LeavesLogitsThatOtherRanksRead) {
  std::string text =
      Replaced(kLoss, "  %logits = aten.add.Tensor(%x, %y)\n",
               "  %g! = comm.all_gather(%x, over=[dp], why=unshard)\n  %logits = comm.wait(%g!)\n");
  text = Replaced(Replaced(text, "local\n", "local\nmesh [dp=2]\n"), "%x: bf16[2", "%x: bf16[1");
  std::optional<LossRun> run = LossOf(text);
  ASSERT_TRUE(run);
  EXPECT_FALSE(run->in_place);
}

TEST(LossRun, IsNotFoundWhereTheKernelWouldComputeSomethingElse) {
  auto changed = [](const std::string& from, const std::string& to) {
    return LossOf(Replaced(kLoss, from, to)).has_value();
  };
  EXPECT_FALSE(changed("%grad, %count)", "%grad, %logp)"));
  EXPECT_FALSE(changed("%grad, %count)", "%grad, %wide)"));
  EXPECT_FALSE(changed("%grad, %count)", "%grad, %weight)"));
  EXPECT_FALSE(changed("%targets, reduction=2, ignore_index=-100)\n  %ne",
                       "%targets, reduction=2, ignore_index=-1)\n  %ne"));
  EXPECT_FALSE(changed("%targets, reduction=2", "%targets, reduction=1"));
  // The gradient depends on the loss.
  EXPECT_FALSE(changed("aten.div.Tensor(%one, %count)", "aten.div.Tensor(%div, %count)"));
  EXPECT_FALSE(changed("aten.nll_loss_backward(%scale", "aten.nll_loss_backward(%sum"));
}

std::optional<AdamWRun> UpdatesOf(const std::string& text, size_t first = 1) {
  Module module = Parsed(text);
  return FindAdamWRun(module.graphs[0], Uses(module.graphs[0]), NodeId(first));
}

TEST(AdamWRun, TakesUpdatesWithEqualNumbers) {
  std::optional<AdamWRun> run = UpdatesOf(kUpdates);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->count, 4u);
  EXPECT_EQ(run->updates.size(), 2u);
  EXPECT_TRUE(run->clip);
  EXPECT_EQ(run->weight_decay, 0.1);
  // The clip factor is not part of the run, and a single update is not a list.
  EXPECT_FALSE(UpdatesOf(kUpdates, 0));
  EXPECT_FALSE(UpdatesOf(kUpdates, 3));
  // The second update has a gradient that is not clipped, other numbers, or another reader.
  EXPECT_FALSE(UpdatesOf(Replaced(kUpdates, "[%bc]", "[%bg]")));
  std::string other = Replaced(kUpdates, "[%bv], [], [%step], %lr, beta1=0.9",
                               "[%bv], [], [%step], %lr, beta1=0.8");
  EXPECT_FALSE(UpdatesOf(other));
  EXPECT_FALSE(
      UpdatesOf(Replaced(kUpdates, "update %bv -> %bv2", "update %bv -> %bv2, metric \"bc\" %bc")));
}

// Compares outputs of a text with and without kernels; inputs are updated.
void ExpectSameBits(const std::string& text, const Tensors& inputs, bool has, int made) {
  Module module = Parsed(text);
  AtenKernels kernels;
  kernels.has = has;
  RankProgram fused = *RankProgram::Compile(
      module, module.graphs[0],
      {.kernels = [&](const Graph& graph) { return ArrangeKernels(graph, kernels); }});
  EXPECT_EQ(kernels.made, made);
  RankProgram plain = *RankProgram::Compile(module, module.graphs[0]);
  auto copies = [&] {
    Tensors all;
    for (const at::Tensor& input : inputs) all.push_back(input.clone());
    return all;
  };
  std::vector<Tensors> given = {copies(), copies(), copies()};
  Tensors expected = *plain.RunAlone(given[0]);
  Tensors outputs = *fused.RunAlone(given[1]);
  // Observers see every node, so kernels do not run.
  size_t seen = 0;
  auto watched = *fused.Run({&given[2], 1}, [&](NodeId, std::span<const Tensors>) { ++seen; });
  EXPECT_EQ(seen, module.graphs[0].node_count());
  for (size_t o = 0; o < expected.size(); ++o) {
    EXPECT_TRUE(outputs[o].equal(expected[o])) << o << "\n" << outputs[o] << "\n" << expected[o];
    EXPECT_TRUE(watched[0][o].equal(expected[o])) << o;
    EXPECT_EQ(outputs[o].sizes(), expected[o].sizes());
  }
  for (size_t i = 0; i < inputs.size(); ++i) EXPECT_TRUE(given[1][i].equal(given[0][i])) << i;
}

at::Tensor Wave(at::IntArrayRef sizes, double from) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return at::sin(at::linspace(from, from + static_cast<double>(count), count)).view(sizes);
}

TEST(KernelBackend, RunsALossWithTheSameBits) {
  Tensors inputs = {Wave({2, 3, 16}, 0).mul(5).to(at::kBFloat16),
                    Wave({2, 3, 16}, 9).to(at::kBFloat16),
                    at::tensor({1, 15, -100, 0, 7, 3}, at::kLong).view({2, 3})};
  ExpectSameBits(kLoss, inputs, true, 1);
  // Another consumer of the logits must not see the gradient.
  ExpectSameBits(Replaced(kLoss, "%grad, %count)", "%grad, %logits)"), inputs, true, 1);
  // Without a kernel ATen runs all nodes.
  ExpectSameBits(kLoss, inputs, false, 1);
  // Backward needs only the shape of the loss.
  ExpectSameBits(Replaced(kLoss, "ones_like(%div)", "zeros_like(%div)"), inputs, true, 1);
}

TEST(KernelBackend, RunsUpdatesWithTheSameBits) {
  Tensors inputs;
  for (double from : {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0})
    inputs.push_back(static_cast<int>(from) % 2 == 1 ? Wave({4, 6}, from) : Wave({5}, from));
  for (size_t i : {4u, 5u}) inputs[i] = inputs[i].abs();
  for (double number : {1e-3, 3.0, 0.4}) inputs.push_back(at::full({}, number, at::kFloat));
  ExpectSameBits(kUpdates, inputs, true, 1);
  // ATen is asked at every position where a run could begin.
  ExpectSameBits(kUpdates, inputs, false, 1);
  // State in another layout runs node by node.
  inputs[0] = inputs[0].view({6, 4}).t();
  ExpectSameBits(kUpdates, inputs, true, 1);
}

// Gradients with a cast that only the optimizer reads.
constexpr const char* kNarrow = R"(heddle 1 local
graph @g(%a: f32[4,6] param 0 "a", %b: f32[5] param 1 "b", %am: f32[4,6] opt 0 "exp_avg",
         %bm: f32[5] opt 1 "exp_avg", %av: f32[4,6] opt 0 "exp_avg_sq",
         %bv: f32[5] opt 1 "exp_avg_sq", %x: bf16[4,6] batch "x", %y: bf16[5] batch "y",
         %lr: f32[] hyper "lr", %step: f32[] hyper "step")
    -> (grad 0 %ag, grad 1 %bg, update %a -> %a2, update %b -> %b2, update %am -> %am2,
        update %bm -> %bm2, update %av -> %av2, update %bv -> %bv2) {
 bwd:
  %an = aten.neg(%x)
  %ag = aten._to_copy(%an, dtype=f32)
  %bn = aten.neg(%y)
  %bg = aten._to_copy(%bn, dtype=f32)
 opt:
  %squares = heddle.squared_norm(%ag, %bg)
  %norm = aten.sum(%squares)
  %clip = aten.clamp(%norm, max=1.0)
  %ac = aten.mul.Tensor(%ag, %clip)
  %a2, %ag2, %am2, %av2 = aten._fused_adamw.tensor_lr([%a], [%ac], [%am], [%av], [], [%step], %lr, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=false, maximize=false)
  %bc = aten.mul.Tensor(%bg, %clip)
  %b2, %bg2, %bm2, %bv2 = aten._fused_adamw.tensor_lr([%b], [%bc], [%bm], [%bv], [], [%step], %lr, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=false, maximize=false)
}
)";

TEST(KernelBackend, ReadsGradientsBeforeTheirCast) {
  Tensors inputs;
  for (double from : {1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0})
    inputs.push_back(static_cast<int>(from) % 2 == 1 ? Wave({4, 6}, from) : Wave({5}, from));
  for (size_t i : {4u, 5u}) inputs[i] = inputs[i].abs();
  for (size_t i : {6u, 7u}) inputs[i] = inputs[i].to(at::kBFloat16);
  for (double number : {1e-3, 3.0}) inputs.push_back(at::full({}, number, at::kFloat));
  struct Case {
    std::string text;
    bool has = true;
    bool narrow = true;
  };
  // With another consumer of a cast, the cast runs; and without kernels.
  std::string read =
      Replaced(kNarrow, "update %bv -> %bv2)", "update %bv -> %bv2, metric \"other\" %other)");
  read = Replaced(read, " opt:\n", "  %other = aten.neg(%ag)\n opt:\n");
  for (const Case& c : {Case{kNarrow}, Case{read, true, false}, Case{kNarrow, false, false}}) {
    Module module = Parsed(c.text);
    AtenKernels kernels;
    kernels.has = c.has;
    RankProgram fused = *RankProgram::Compile(
        module, module.graphs[0],
        {.kernels = [&](const Graph& graph) { return ArrangeKernels(graph, kernels); }});
    RankProgram plain = *RankProgram::Compile(module, module.graphs[0]);
    Tensors given = inputs;
    for (at::Tensor& tensor : given) tensor = tensor.clone();
    Tensors expected = *plain.RunAlone(inputs);
    Tensors outputs = *fused.RunAlone(given);
    EXPECT_EQ(kernels.narrow, c.narrow);
    ASSERT_EQ(outputs.size(), expected.size());
    for (size_t o = 0; o < expected.size(); ++o)
      EXPECT_TRUE(outputs[o].to(at::kFloat).equal(expected[o].to(at::kFloat))) << o;
    // Gradients are returned as they were before the cast.
    EXPECT_EQ(outputs[1].scalar_type(), at::kBFloat16);
  }
}

// A step whose weights have copies.
constexpr const char* kCopied = R"(heddle 1 local
graph @g(%v: f32[8,8] param 0 "v", %w: f32[8,8] param 1 "w", %vm: f32[8,8] opt 0 "exp_avg",
         %wm: f32[8,8] opt 1 "exp_avg", %vv: f32[8,8] opt 0 "exp_avg_sq",
         %wv: f32[8,8] opt 1 "exp_avg_sq", %x: bf16[512,8] batch "x", %lr: f32[] hyper "lr",
         %step: f32[] hyper "step")
    -> (metric "s" %s, grad 0 %gv, grad 1 %gw, update %v -> %v2, update %w -> %w2,
        update %vm -> %vm2, update %wm -> %wm2, update %vv -> %vv2, update %wv -> %wv2) {
  %v16 = aten._to_copy(%v, dtype=bf16)
  %a = aten.mm(%x, %v16)
  %w16 = aten._to_copy(%w, dtype=bf16)
  %b = aten.mm(%a, %w16)
  %s = aten.sum(%b)
 bwd:
  %at = aten.t(%a)
  %dw = aten.mm(%at, %b)
  %wt = aten.t(%w16)
  %da = aten.mm(%b, %wt)
  %xt = aten.t(%x)
  %dv = aten.mm(%xt, %da)
  %vt = aten.t(%v16)
  %dx = aten.mm(%da, %vt)
  %gw = aten._to_copy(%dw, dtype=f32)
  %gv = aten._to_copy(%dv, dtype=f32)
 opt:
  %v2, %gv2, %vm2, %vv2 = aten._fused_adamw.tensor_lr([%v], [%gv], [%vm], [%vv], [], [%step], %lr, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=false, maximize=false)
  %w2, %gw2, %wm2, %wv2 = aten._fused_adamw.tensor_lr([%w], [%gw], [%wm], [%wv], [], [%step], %lr, beta1=0.9, beta2=0.95, weight_decay=0.1, eps=1e-8, amsgrad=false, maximize=false)
}
)";

// Runs three steps of kCopied with and without kernels. Returns the number of lists' casts.
size_t ExpectCopiesOfEqualBits(const std::string& text, bool has, const std::set<int64_t>& copied,
                               bool contiguous = true) {
  Module module = Parsed(text);
  AtenKernels kernels;
  kernels.has = has;
  auto copies = std::make_shared<WeightCopies>();
  RankProgram fused = *RankProgram::Compile(
      module, module.graphs[0],
      {.kernels = [&](const Graph& graph) { return ArrangeKernels(graph, kernels, copies); }});
  EXPECT_EQ(copies->params, copied);
  kernels.casts = 0;
  RankProgram plain = *RankProgram::Compile(module, module.graphs[0]);
  Tensors inputs;
  for (double from : {1.0, 2.0, 3.0, 4.0}) inputs.push_back(Wave({8, 8}, from));
  for (double from : {5.0, 6.0}) inputs.push_back(Wave({8, 8}, from).abs());
  inputs.push_back(Wave({512, 8}, 7).to(at::kBFloat16));
  for (double number : {1e-2, 3.0}) inputs.push_back(at::full({}, number, at::kFloat));
  if (!contiguous) inputs[0] = inputs[0].t();
  Tensors given;
  for (const at::Tensor& input : inputs) given.push_back(input.clone());
  copies->of_rank.resize(1);
  for (int64_t param : copied)
    copies->of_rank[0][param] = given[static_cast<size_t>(param)].to(at::kBFloat16);
  for (int step = 0; step < 3; ++step) {
    Tensors expected = *plain.RunAlone(inputs);
    Tensors outputs = *fused.RunAlone(given);
    for (size_t o = 0; o < expected.size(); ++o)
      EXPECT_TRUE(outputs[o].to(at::kFloat).equal(expected[o].to(at::kFloat))) << step << " " << o;
    for (int64_t param : copied)
      EXPECT_TRUE(
          copies->of_rank[0][param].equal(given[static_cast<size_t>(param)].to(at::kBFloat16)))
          << step << " " << param;
  }
  // The step reads the copies.
  for (int64_t param : copied) {
    at::Tensor before = fused.RunAlone(given)->at(0).clone();
    copies->of_rank[0][param].fill_(0);
    EXPECT_FALSE(fused.RunAlone(given)->at(0).equal(before)) << param;
  }
  return kernels.casts;
}

TEST(KernelBackend, UpdatesWriteTheCastsOfTheNextStep) {
  EXPECT_EQ(ExpectCopiesOfEqualBits(kCopied, true, {0, 1}), 0u);
  // ATen updates a parameter in another layout, then the copy.
  EXPECT_EQ(ExpectCopiesOfEqualBits(kCopied, true, {0, 1}, false), 0u);
  // Without a kernel, parameters have no copies.
  EXPECT_EQ(ExpectCopiesOfEqualBits(kCopied, false, {}), 0u);
  // The caller gets one of the casts, so the list casts it.
  std::string output =
      Replaced(kCopied, "(metric \"s\" %s,", "(metric \"s\" %s, metric \"w\" %w16,");
  EXPECT_EQ(ExpectCopiesOfEqualBits(output, true, {0}), 5u);
}

// Values inside kernels, casts that do not run and gradients in place of logits use no memory.
TEST(KernelMemory, CountsWhatIsAllocated) {
  auto peak = [](const std::string& text) {
    Module module = Parsed(text);
    return MemoryWithKernels(module.graphs[0]);
  };
  // Inputs, logits, the loss and numbers of one element; %weight stays inside the kernel.
  KernelMemory loss = peak(Replaced(kLoss, "%grad, %count)", "%grad)"));
  int64_t inputs = 2 * 2 * 3 * 16 * 2 + 2 * 3 * 8;
  EXPECT_EQ(loss.largest[0].first, "logits");
  EXPECT_LT(loss.peak.value, inputs + 2 * 3 * 16 * 2 + 64);
  EXPECT_GE(loss.peak.value, inputs + 2 * 3 * 16 * 2);
  // Gradients before their cast, their squared norms, and the sum of these.
  KernelMemory narrow = peak(kNarrow);
  int64_t state = 3 * 4 * 29 + 2 * 29 + 8;
  EXPECT_EQ(narrow.peak.value, state + 2 * 29 + 4 * 2 + 4);
  // A chain stores only its last value.
  KernelMemory chain = peak(R"(heddle 1 local
graph @g(%x: bf16[64,64], %y: bf16[64,64]) -> (%c) {
  %a = aten.add.Tensor(%x, %y)
  %b = aten.mul.Tensor(%a, %y)
  %c = aten.neg(%b)
}
)");
  EXPECT_EQ(chain.peak.value, 3 * 64 * 64 * 2);
}

}  // namespace
}  // namespace heddle::run
