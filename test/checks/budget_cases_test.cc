// Graph shapes that are difficult for memory searches, each with the expected decisions.
#include <gtest/gtest.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/search/memory/memory_search.h"

namespace heddle {
namespace {

constexpr Bytes kMatrix{int64_t{4} << 20};

// Without a link to the host, so values are kept or recomputed.
price::CostModel Model() {
  price::Cluster cluster = *price::LoadCluster("h100-8x");
  cluster.host.reset();
  return *price::CostModel::Make(std::move(cluster), {});
}

class Step {
 public:
  explicit Step(const std::string& text, const char* after = "clean")
      : model_(Model()), after_(*compile::ParsePipeline(after, compile::Passes())) {
    Result<Module> module = ParseModule(text, "step", Ops());
    EXPECT_TRUE(module.ok()) << text << Format(module.diagnostics());
    module_ = *std::move(module);
    EXPECT_TRUE(
        compile::RunPipeline(module_, *compile::ParsePipeline("clean", compile::Passes())).ok());
    search_ = *search::MemorySearch::Make(module_, after_, model_);
    curve_ = *search_->Sweep();
  }

  Bytes most() const { return curve_.front().peak; }
  Bytes least() const { return curve_.back().peak; }
  search::MemoryChoice FindWithin(Bytes budget) {
    Result<search::MemoryChoice> choice = search_->FindWithin(budget);
    EXPECT_TRUE(choice.ok()) << Format(choice.diagnostics());
    if (!choice.ok()) return curve_.back();
    EXPECT_LE(choice->peak, budget);
    return *choice;
  }
  // Returns the time of a node.
  Nanos TimeOf(std::string_view name) const {
    const Graph& graph = module_.graphs[0];
    return model_.Price(module_, graph)->nodes[graph[graph.FindValue(name)].producer].compute;
  }
  Keep MarkOf(const search::MemoryChoice& choice, std::string_view name) const {
    return choice.marks[module_.graphs[0].FindValue(name).index()];
  }
  // Returns the number of nodes of an op in the final graph.
  int64_t CountOf(const search::MemoryChoice& choice, OpId op) {
    Module module = search_->trials().Marked(choice.marks);
    compile::Pipeline all = *compile::ParsePipeline(compile::kCarryOut, compile::Passes());
    all.insert(all.end(), after_.begin(), after_.end());
    EXPECT_TRUE(compile::RunPipeline(module, all).ok());
    const Graph& graph = module.graphs[0];
    return std::ranges::count_if(graph.nodes(), [&](NodeId node) { return graph[node].op == op; });
  }

 private:
  Module module_;
  price::CostModel model_;
  compile::Pipeline after_;
  std::unique_ptr<search::MemorySearch> search_;
  std::vector<search::MemoryChoice> curve_;
};

// A sum over copies of `value`: memory peaks at the end of forward, where every kept value counts.
std::string EndOfForward(const char* value) {
  return fmt::format(
      "  %many = aten.cat([%{0}, %{0}, %{0}, %{0}, %{0}, %{0}, %{0}, %{0}])\n  %y = "
      "aten.sum(%many)\n",
      value);
}

// Each recomputed value takes one more product, and saves one matrix.
TEST(BudgetCases, AChainOfProducts) {
  std::string text =
      "heddle 1 local\ngraph @g(%h0: f32[1024,1024] batch \"x\", %w: f32[1024,1024] param 0 "
      "\"w\") -> (metric \"y\" %y, metric \"d\" %d1) {\n fwd:\n";
  for (int i = 1; i <= 6; ++i) text += fmt::format("  %h{} = aten.mm(%h{}, %w)\n", i, i - 1);
  text += EndOfForward("h6") + " bwd:\n  %d6 = aten.neg(%h0)\n";
  for (int i = 5; i >= 1; --i)
    text += fmt::format("  %d{} = aten.mul.Tensor(%d{}, %h{})\n", i, i + 1, i);
  Step step(text + "}\n");
  Nanos product = step.TimeOf("h1");
  search::MemoryChoice all = step.FindWithin(step.most());
  EXPECT_EQ(all.recompute, Nanos{});
  std::vector<int64_t> products;
  for (int64_t less = 0; less <= 5; ++less) {
    search::MemoryChoice choice = step.FindWithin(step.most() - kMatrix * less);
    EXPECT_EQ(choice.step, all.step + choice.recompute);
    EXPECT_EQ(choice.recompute.value % product.value, 0);
    EXPECT_EQ(step.CountOf(choice, op::mm), 6 + choice.recompute.value / product.value);
    products.push_back(choice.recompute.value / product.value);
  }
  EXPECT_EQ(products, (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
}

// Of two values of the same size, the cheaper one is recomputed.
TEST(BudgetCases, TheCheaperProductIsRecomputed) {
  for (bool first_is_cheap : {true, false}) {
    auto [a, b] = first_is_cheap ? std::pair(64, 4096) : std::pair(4096, 64);
    Step step(fmt::format(
        "heddle 1 local\ngraph @g(%p: f32[1024,{0}] batch \"p\", %q: f32[{0},1024] batch \"q\", "
        "%r: f32[1024,{1}] batch \"r\", %s: f32[{1},1024] batch \"s\") -> (metric \"y\" %y, metric "
        "\"d\" %e) {{\n fwd:\n  %a = aten.mm(%p, %q)\n  %b = aten.mm(%r, %s)\n  %c = "
        "aten.add.Tensor(%a, %b)\n{2} bwd:\n  %d = aten.mul.Tensor(%a, %b)\n  %e = "
        "aten.sum(%d)\n}}\n",
        a, b, EndOfForward("c")));
    search::MemoryChoice choice = step.FindWithin(step.most() - kMatrix);
    EXPECT_EQ(step.MarkOf(choice, "a") == Keep::kPreferRecompute, first_is_cheap);
    EXPECT_EQ(step.MarkOf(choice, "b") == Keep::kPreferRecompute, !first_is_cheap);
  }
}

// A chain with several consumers is priced once, and pointwise ops by their bytes.
TEST(BudgetCases, AChainIsComputedOnce) {
  Step step(
      "heddle 1 local\ngraph @g(%x: f32[1024,1024] batch \"x\") -> (metric \"y\" %y, metric \"d\" "
      "%f) {\n fwd:\n  %a = aten.sin(%x)\n  %b = aten.cos(%a)\n  %c = aten.exp(%b)\n  %z = "
      "aten.tanh(%c)\n" +
      EndOfForward("z") +
      " bwd:\n  %d = aten.mul.Tensor(%c, %y)\n  %e = aten.mul.Tensor(%d, %b)\n  %h = "
      "aten.mul.Tensor(%e, %a)\n  %f = aten.sum(%h)\n}\n");
  search::MemoryChoice choice = step.FindWithin(step.most() - kMatrix * 3);
  EXPECT_EQ(choice.recompute, step.TimeOf("a") + step.TimeOf("b") + step.TimeOf("c"));
  EXPECT_EQ(step.CountOf(choice, op::sin), 2);
}

// Keeps the operand of backward, and not the product that it is computed from.
TEST(BudgetCases, TheSumIsKeptAndNotItsProduct) {
  Step step(
      "heddle 1 local\ngraph @g(%x: f32[1024,1024] batch \"x\", %w: f32[1024,1024] param 0 \"w\") "
      "-> (metric \"y\" %y, metric \"d\" %f) {\n fwd:\n  %a = aten.mm(%x, %w)\n  %b = "
      "aten.add.Tensor(%a, %x)\n  %c = aten.exp(%b)\n" +
      EndOfForward("c") + " bwd:\n  %d = aten.mul.Tensor(%b, %y)\n  %f = aten.sum(%d)\n}\n");
  search::MemoryChoice choice = step.FindWithin(step.most());
  EXPECT_EQ(choice.recompute, Nanos{});
  EXPECT_EQ(step.CountOf(choice, op::mm), 1);
  // With a matrix less, both are recomputed.
  EXPECT_EQ(step.CountOf(step.FindWithin(step.most() - kMatrix), op::mm), 2);
}

// A user's mark on one of several results holds under the smallest budget.
TEST(BudgetCases, AMarkOnATupleHolds) {
  Step step(
      "heddle 1 local\ngraph @g(%x: f32[1024,1024] batch \"x\") -> (metric \"y\" %y, metric \"d\" "
      "%f) {\n fwd:\n  %b = aten.sin(%x)\n  %m, %i = aten.max.dim(%b, dim=1) : (f32[1024], "
      "i64[1024]) keep=[must_save,default]\n  %c = aten.exp(%b)\n" +
      EndOfForward("c") + " bwd:\n  %d = aten.mul.Tensor(%b, %m)\n  %f = aten.sum(%d)\n}\n");
  search::MemoryChoice choice = step.FindWithin(step.most() - kMatrix);
  EXPECT_EQ(step.CountOf(choice, op::sin), 2);
  EXPECT_EQ(step.CountOf(choice, op::max_dim), 1);
}

// Hundreds of values of 64 bytes count: the budget holds to the byte.
TEST(BudgetCases, SmallValuesCount) {
  constexpr int kValues = 300;
  std::string text =
      "heddle 1 local\ngraph @g(%v0: f32[16] batch \"x\") -> (metric \"y\" %v300, metric \"d\" "
      "%d0) {\n fwd:\n";
  for (int i = 1; i <= kValues; ++i) text += fmt::format("  %v{} = aten.sin(%v{})\n", i, i - 1);
  text += fmt::format(" bwd:\n  %d{} = aten.neg(%v{})\n", kValues, kValues);
  for (int i = kValues; i-- > 0;)
    text += fmt::format("  %d{} = aten.mul.Tensor(%d{}, %v{})\n", i, i + 1, i);
  Step step(text + "}\n");
  EXPECT_GE(step.most(), Bytes{int64_t{64} * kValues});
  Nanos last;
  for (int64_t less : {0, 1, 64, 640, 6400}) {
    search::MemoryChoice choice = step.FindWithin(step.most() - Bytes{less});
    EXPECT_GE(choice.step, last);
    EXPECT_EQ(choice.recompute > Nanos{}, less > 0);
    last = choice.step;
  }
}

// Smaller budgets never give larger peaks.
TEST(BudgetCases, PeaksFallWithBudgets) {
  std::string text =
      "heddle 1 local\ngraph @g(%x0: f32[1024,1024] batch \"x\", %g4: f32[1024,1024] tangent \"g\"";
  for (int i = 0; i < 4; ++i)
    text += fmt::format(
        ", %a{0}: f32[1024,2048] param {1} \"a{0}\", %b{0}: f32[1024,2048] param {2} \"b{0}\", "
        "%c{0}: f32[2048,1024] param {3} \"c{0}\"",
        i, 3 * i, 3 * i + 1, 3 * i + 2);
  std::string forward;
  std::string backward;
  std::string outputs;
  for (int i = 0; i < 4; ++i) {
    std::string scope = fmt::format("@layers.{}", i);
    forward += fmt::format(
        "  %p{0} = aten.mm(%x{0}, %a{0}) {2}\n  %q{0} = aten.mm(%x{0}, %b{0}) {2}\n  %r{0} = "
        "aten.silu(%p{0}) {2}\n  %s{0} = aten.mul.Tensor(%r{0}, %q{0}) {2}\n  %t{0} = "
        "aten.mm(%s{0}, %c{0}) {2}\n  %x{1} = aten.add.Tensor(%x{0}, %t{0}) {2}\n",
        i, i + 1, scope);
  }
  for (int i = 4; i-- > 0;) {
    std::string scope = fmt::format("@layers.{}", i);
    backward += fmt::format(
        "  %ct{0} = aten.t(%c{0}) {2}\n  %ds{0} = aten.mm(%g{1}, %ct{0}) {2}\n  %dr{0} = "
        "aten.mul.Tensor(%ds{0}, %q{0}) {2}\n  %dq{0} = aten.mul.Tensor(%ds{0}, %r{0}) {2}\n  "
        "%dp{0} = aten.silu_backward(%dr{0}, %p{0}) {2}\n  %at{0} = aten.t(%a{0}) {2}\n  %bt{0} = "
        "aten.t(%b{0}) {2}\n  %ga{0} = aten.mm(%dp{0}, %at{0}) {2}\n  %gb{0} = aten.mm(%dq{0}, "
        "%bt{0}) {2}\n  %gc{0} = aten.add.Tensor(%ga{0}, %gb{0}) {2}\n  %g{0} = "
        "aten.add.Tensor(%gc{0}, %g{1}) {2}\n  %xt{0} = aten.t(%x{0}) {2}\n  %wa{0} = "
        "aten.mm(%xt{0}, %dp{0}) {2}\n  %wb{0} = aten.mm(%xt{0}, %dq{0}) {2}\n  %st{0} = "
        "aten.t(%s{0}) {2}\n  %wc{0} = aten.mm(%st{0}, %g{1}) {2}\n",
        i, i + 1, scope);
    outputs += fmt::format("grad {1} %wa{0}, grad {2} %wb{0}, grad {3} %wc{0}, ", i, 3 * i,
                           3 * i + 1, 3 * i + 2);
  }
  Step step(fmt::format("{}) -> ({}metric \"y\" %x4) {{\n fwd:\n{} bwd:\n{}}}\n", text, outputs,
                        forward, backward));
  EXPECT_LT(step.least(), step.most());
  Bytes peak = step.most();
  Nanos last;
  for (int64_t part = 20; part >= 0; --part) {
    Bytes budget = step.least() + Bytes{(step.most() - step.least()).value * part / 20};
    search::MemoryChoice choice = step.FindWithin(budget);
    EXPECT_LE(choice.peak, peak);
    EXPECT_GE(choice.step, last);
    peak = choice.peak;
    last = choice.step;
  }
}

// A gathered weight is kept if memory allows, and gathered again otherwise.
TEST(BudgetCases, WeightsAreGatheredAgainWhereThereIsNoRoom) {
  std::string text = "heddle 1 local\nmesh [dp=8]\ngraph @g(%x0: f32[8192,1024] batch \"x\"";
  std::string forward;
  std::string backward = "  %g8 = aten.neg(%x8)\n";
  for (int i = 0; i < 8; ++i) {
    text += fmt::format(", %p{0}: f32[128,1024] param {0} \"layers.{0}.w\"", i);
    forward += fmt::format(
        "  %w{0}! = comm.all_gather(%p{0}, over=[dp], why=unshard, unit=\"layers.{0}\") "
        "@layers.{0}\n"
        "  %w{0} = comm.wait(%w{0}!) @layers.{0}\n  %x{1} = aten.mm(%x{0}, %w{0}) @layers.{0}\n",
        i, i + 1);
  }
  for (int i = 8; i-- > 0;)
    backward += fmt::format("  %g{0} = aten.mm(%g{1}, %w{0}) @layers.{0}\n", i, i + 1);
  Step step(
      fmt::format("{}) -> (metric \"d\" %g0) {{\n fwd:\n{} bwd:\n{}}}\n", text, forward, backward),
      "reshard-after-forward, dce");
  EXPECT_EQ(step.CountOf(step.FindWithin(step.most()), op::comm_all_gather), 8);
  EXPECT_GT(step.CountOf(step.FindWithin(step.least()), op::comm_all_gather), 8);
}

}  // namespace
}  // namespace heddle
