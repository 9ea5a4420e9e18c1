// Checks every op of the table with its example: the facts of an entry must be consistent.
#include "heddle/core/ops/ops.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "heddle/core/ir/check/check_module.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ir/structural_hash.h"
#include "heddle/core/ir/text/op_example.h"
#include "heddle/core/ir/text/parse.h"
#include "heddle/core/ir/text/print.h"

namespace heddle {
namespace {

struct Call {
  Example example;
  std::vector<Type> operands;
  Types results;

  explicit Call(OpId id) : example(*MakeExample(Ops(), id)) {
    operands = OperandTypes(graph(), graph().operands(NodeId(0)));
    for (ValueId v : graph().results(NodeId(0)))
      results.push_back(graph().types()[graph().type(v)]);
  }
  Graph& graph() { return example.module.graphs[0]; }
  const Attrs& attrs() { return graph().attrs(NodeId(0)); }
  OpArgs Args(const Op& op, const Attrs& attrs, std::vector<Type> types) {
    return OpArgs(op, attrs, example.module.mesh, graph().types().symbols(), std::move(types));
  }
};

class EveryOp : public testing::TestWithParam<uint32_t> {
 protected:
  OpId id() const { return OpId(GetParam()); }
  const Op& op() const { return Ops()[id()]; }
};

// Ops with factors. Collectives work on shards and have none.
class ShardedOp : public EveryOp {};
// Ops whose node can be printed alone. A wait needs a collective; the test of the collective prints
// both.
class WrittenOp : public EveryOp {};

std::vector<uint32_t> Where(bool (*holds)(OpId)) {
  std::vector<uint32_t> ids;
  for (OpId id : Ops().ids()) {
    if (id != kOpaqueOp && holds(id)) ids.push_back(id.index());
  }
  return ids;
}

std::string NameOf(const testing::TestParamInfo<uint32_t>& info) {
  std::string name(Ops()[OpId(info.param)].name());
  std::ranges::replace(name, '.', '_');
  return name;
}

TEST_P(EveryOp, HasAnExampleThatReadsBack) {
  Result<Example> example = MakeExample(Ops(), id());
  ASSERT_TRUE(example.ok()) << Format(example.diagnostics());
  std::string text = Print(example->module);
  Parsed again = ParseText(text, "printed", Ops());
  ASSERT_TRUE(again.diagnostics.empty()) << text << Format(again.diagnostics);
  EXPECT_EQ(Print(again.module), text);
  if (op().family != "comm") {
    EXPECT_TRUE(Verify(example->module).ok()) << text;
  }
}

// The example as text in this view, without result types. A collective is followed by a wait.
std::string UntypedText(const Module& module, View view) {
  const Graph& graph = module.graphs[0];
  std::string inputs;
  for (const Input& input : graph.inputs())
    inputs += (inputs.empty() ? "" : ", ") + PrintInput(module, graph, input);
  std::string node = PrintNode(module, graph, NodeId(0));
  std::string wait;
  TypeId type = graph.type(graph.results(NodeId(0))[0]);
  for (size_t i = 0; i < graph.types().elements(type).size(); ++i)
    wait += fmt::format("{}%w{}", i == 0 ? "" : ", ", i);
  if (!wait.empty()) wait += " = comm.wait(%r0)\n";
  return fmt::format("heddle 1 {}\nmesh [dp=4, tp=2]\ngraph @g({}) -> () {{\n{}\n{}}}\n",
                     Name(view), inputs, node.substr(0, node.rfind(" : ")), wait);
}

// Every accepted node prints as accepted text with the same meaning, in both views, and with sizes
// that mesh axes do not divide.
TEST_P(WrittenOp, PrintsWhatReadsBack) {
  Module example = MakeExample(Ops(), id())->module;
  size_t accepted = 0;
  for (View view : {View::kLocal, View::kGlobal}) {
    std::string text = UntypedText(example, view);
    for (size_t at = text.find('['); (at = text.find_first_of("123456789", at)) != text.npos;
         ++at) {
      for (const char* number : {"1", "2", "3", "5", "8"}) {
        std::string edited = text;
        edited.replace(at, 1, number);
        Result<Module> module = ParseModule(edited, "edited", Ops());
        if (!module.ok()) continue;
        ++accepted;
        std::string printed = Print(*module);
        Result<Module> again = ParseModule(printed, "printed", Ops());
        ASSERT_TRUE(again.ok()) << printed << Format(again.diagnostics());
        EXPECT_EQ(Print(*again), printed);
        EXPECT_EQ(StructuralHash(*again), StructuralHash(*module)) << printed;
      }
    }
  }
  EXPECT_GT(accepted, 0u);
}

TEST(Ops, CollectivesHaveAttributesForEachTensor) {
  const Module module = *ParseModule(
      "heddle 1 local\nmesh [dp=4]\ngraph @g(%x: f32[4,8], %y: f32[8,4]) -> (%a, %b) {\n"
      "  %h = comm.all_gather(%x, %y, over=[dp], dim=[1,0], why=unshard, unit=[\"u\",\"v\"])\n"
      "  %a, %b = comm.wait(%h)\n}\n",
      "test", Ops());
  const Graph& graph = module.graphs[0];
  SymbolTable symbols;
  OpArgs args(graph.op(NodeId(0)), graph.attrs(NodeId(0)), module.mesh, symbols, {});
  EXPECT_EQ(args.EachInt("dim", 0), 1);
  EXPECT_EQ(args.EachInt("dim", 1), 0);
  EXPECT_EQ(args.EachString("unit", 1), "v");
  EXPECT_EQ(PrintType(module, graph, graph.type(graph.FindValue("a"))), "f32[4,32]");
  EXPECT_EQ(PrintType(module, graph, graph.type(graph.FindValue("b"))), "f32[32,4]");
}

TEST(Ops, ConstantsAreMadeOfAttributes) {
  std::string constants;
  for (OpId id : Ops().ids()) {
    const OpDef& def = *Ops()[id].def;
    if (!def.constant) continue;
    EXPECT_FALSE(def.shape_attr.empty());
    constants += std::string(Ops()[id].name()) + " ";
  }
  EXPECT_EQ(constants,
            "aten.empty.memory_format aten.full aten.new_empty aten.new_full aten.new_ones "
            "aten.new_zeros aten.ones aten.zeros ");
}

TEST_P(EveryOp, HasWorkThatIsNotNegative) {
  Call call(id());
  Work work = InferWork(call.Args(op(), call.attrs(), call.operands), call.results);
  EXPECT_GE(work.flops.value, 0);
  EXPECT_GE(work.read.value, 0);
  EXPECT_GE(work.written.value, 0);
  if (op().family == "matmul") {
    EXPECT_GT(work.flops.value, 0);
  }
}

TEST_P(ShardedOp, HasFactorsThatMakeUpItsShapes) {
  Call call(id());
  Result<Factors> factors =
      InferFactors(call.Args(op(), call.attrs(), call.operands), call.results);
  ASSERT_TRUE(factors.ok()) << Format(factors.diagnostics());
  ASSERT_EQ(factors->operands.size(), call.operands.size());
  ASSERT_EQ(factors->results.size(), call.results.size());
  auto check = [&](const TensorFactors& dims, const Type& type) {
    ASSERT_EQ(dims.size(), type.rank());
    for (size_t d = 0; d < dims.size(); ++d) {
      int64_t product = 1;
      for (FactorId f : dims[d]) product *= factors->factors.at(f).size;
      // A dimension without factors is broadcast, or equal on every rank.
      if (dims[d].empty()) continue;
      EXPECT_EQ(product, type.dims[d]) << Format(*factors);
    }
  };
  for (size_t i = 0; i < call.operands.size(); ++i) check(factors->operands[i], call.operands[i]);
  for (size_t i = 0; i < call.results.size(); ++i) check(factors->results[i], call.results[i]);
  for (const auto& group : factors->linear) {
    for (uint32_t operand : group) EXPECT_LT(operand, call.operands.size());
  }
}

// Splitting a factor in two must give a valid call whose results are split as the factors state.
TEST_P(ShardedOp, HasFactorsThatAgreeWithItsShapeRule) {
  Call call(id());
  Factors factors = *InferFactors(call.Args(op(), call.attrs(), call.operands), call.results);
  auto halved = [&](const Type& type, const TensorFactors& dims, FactorId f) {
    Type out = type;
    for (size_t d = 0; d < dims.size(); ++d) {
      if (std::ranges::count(dims[d], f) > 0) out.dims[d] /= 2;
    }
    return out;
  };
  EXPECT_EQ(std::ranges::any_of(factors.factors, &Factor::masked), op().def->lookup.has_value());
  for (FactorId f = 0; f < factors.factors.size(); ++f) {
    const Factor& factor = factors.factors[f];
    if (factor.kind == FactorKind::kWhole || factor.size % 2 != 0) continue;
    // Splitting such a factor changes more than shapes: see passes/parallel.
    if (factor.masked || factor.counted) continue;
    std::vector<Type> operands;
    for (size_t i = 0; i < call.operands.size(); ++i)
      operands.push_back(halved(call.operands[i], factors.operands[i], f));
    Types expected;
    for (size_t i = 0; i < call.results.size(); ++i)
      expected.push_back(halved(call.results[i], factors.results[i], f));
    Attrs attrs = call.attrs();
    if (!op().def->shape_attr.empty()) attrs.Set(op().def->shape_attr, expected[0].dims);
    Result<Types> split = InferTypes(call.Args(op(), attrs, operands));
    ASSERT_TRUE(split.ok()) << Format(factors) << " split " << factor.name << ": "
                            << Format(split.diagnostics());
    EXPECT_EQ(*split, expected) << Format(factors) << " split " << factor.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, EveryOp, testing::ValuesIn(Where([](OpId) { return true; })), NameOf);
INSTANTIATE_TEST_SUITE_P(Ops, ShardedOp, testing::ValuesIn(Where([](OpId id) {
                           return Ops()[id].family != "comm";
                         })),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Ops, WrittenOp,
                         testing::ValuesIn(Where([](OpId id) { return id != op::comm_wait; })),
                         NameOf);

TEST(Ops, AreListedInAlphabeticalOrder) {
  std::vector<std::string> names;
#define HEDDLE_OP(ident, family) names.push_back(#ident);
#include "heddle/core/ops/op_list.def"
#undef HEDDLE_OP
  EXPECT_EQ(names[0], "opaque");
  auto key = [](std::string name) {
    name.erase(0, name.find_first_not_of('_'));
    std::ranges::transform(name, name.begin(), [](unsigned char c) { return std::tolower(c); });
    return name;
  };
  EXPECT_TRUE(std::ranges::is_sorted(names.begin() + 1, names.end(), {}, key));
}

TEST(Reshape, FactorsAreTheCommonRefinement) {
  auto factors = [](Dims from, Dims to) {
    Module module;
    Graph graph("g", Ops());
    Attrs attrs;
    attrs.Set("size", to);
    OpArgs args(Ops()[op::view], attrs, module.mesh, graph.types().symbols(),
                {Type::Tensor(DType::kF32, from)});
    return Format(*InferFactors(args, *InferTypes(args)));
  };
  EXPECT_EQ(factors({4, 6, 8}, {24, 8}), "(f0 f1 f2) -> ((f0 f1) f2) linear{0}");
  EXPECT_EQ(factors({24, 8}, {4, 6, 8}), "((f0 f1) f2) -> (f0 f1 f2) linear{0}");
  EXPECT_EQ(factors({4, 6}, {8, 3}), "(f0 (f1 f2)) -> ((f0 f1) f2) linear{0}");
  EXPECT_EQ(factors({6, 4}, {4, 6}), "(f0 f1) -> (f2 f3) whole{f0 f1 f2 f3} linear{0}");
  EXPECT_EQ(factors({4, 1, 6}, {1, 4, 6, 1}), "(f0 1 f1) -> (1 f0 f1 1) linear{0}");
  EXPECT_EQ(factors({12, 5}, {2, 30}), "((f0 f1) f2) -> (f0 (f1 f2)) linear{0}");
  EXPECT_EQ(factors({0, 4}, {4, 0}), "(f0 f1) -> (f2 f3) whole{f0 f1 f2 f3} linear{0}");
}

}  // namespace
}  // namespace heddle
