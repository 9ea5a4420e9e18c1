// Groups of nodes for kernels: their nodes, their positions, and the values they store.
#include <algorithm>

#include <gtest/gtest.h>

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/kernel/element.h"
#include "heddle/core/kernel/kernel_memory.h"
#include "heddle/core/kernel/launches.h"
#include "heddle/core/kernel/program.h"
#include "heddle/core/kernel/runs.h"
#include "heddle/core/kernel/weight_copies.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

Module Parsed(const std::string& text) {
  Result<Module> module = ParseModule(text, "test", Ops());
  EXPECT_TRUE(module.ok()) << Format(module.diagnostics());
  return *std::move(module);
}

struct Arranged {
  explicit Arranged(const std::string& text)
      : module(Parsed(text)),
        arranged(
            ArrangeForKernels(module.graphs[0], std::vector<bool>(module.graphs[0].node_count()))) {
    // If other nodes were between a group's nodes, a node would run twice or never.
    for (const KernelGroup& group : groups())
      EXPECT_EQ(group.nodes.back().index() - group.nodes.front().index() + 1, group.nodes.size());
    Position();
    Store();
  }
  const Graph& graph() const { return arranged.graph; }
  const std::vector<KernelGroup>& groups() const { return arranged.groups; }
  // Names of the first results of nodes.
  std::string Names(const std::vector<NodeId>& nodes) const {
    std::string names;
    for (NodeId node : nodes)
      names += (names.empty() ? "" : " ") + std::string(graph().name(graph()[node].first_result));
    return names;
  }
  std::string Stored(size_t group) const {
    std::string names;
    for (ValueId value : EscapingValues(graph(), Uses(graph()), groups(), group))
      names += (names.empty() ? "" : " ") + std::string(graph().name(value));
    return names;
  }

  Module module;
  ArrangedGraph arranged;

 private:
  // Every value exists before it is read.
  void Position() const {
    for (NodeId node : graph().nodes()) {
      for (ValueId operand : graph().operands(node)) {
        if (!operand || !graph()[operand].producer) continue;
        EXPECT_LT(graph()[operand].producer, node) << graph().name(operand);
      }
    }
  }
  // Programs store the values that have memory.
  void Store() const {
    Uses uses(graph());
    for (size_t g = 0; g < groups().size(); ++g) {
      if (groups()[g].form == KernelGroup::Form::kCasts) continue;
      std::vector<ValueId> stored = StoredValuesOf(graph(), uses, groups(), g).stored;
      std::vector<ValueId> outputs = WriteGroupProgram(graph(), uses, groups(), g).program.outputs;
      EXPECT_TRUE(std::ranges::is_permutation(stored, outputs)) << g;
    }
  }
};

// Order as captured from a training step: matmuls are between the nodes of a group.
constexpr const char* kSwiGlu = R"(heddle 1 local
graph @g(%x: bf16[64,32], %w1: bf16[32,16], %w3: bf16[32,16], %w2: bf16[16,32])
    -> (%y, %da2, %db2) {
  %a = aten.mm(%x, %w1)
  %s = aten.silu(%a)
  %b = aten.mm(%x, %w3)
  %h = aten.mul.Tensor(%s, %b)
  %y = aten.mm(%h, %w2)
 bwd:
  %t = aten.t(%w2)
  %dh = aten.mm(%y, %t)
  %db = aten.mul.Tensor(%dh, %s)
  %ds = aten.mul.Tensor(%dh, %b)
  %xt = aten.t(%x)
  %db2 = aten.mm(%xt, %db)
  %da = aten.silu_backward(%ds, %a)
  %da2 = aten.mm(%xt, %da)
}
)";

TEST(KernelGroups, TakeNodesAroundMatmuls) {
  Arranged a(kSwiGlu);
  ASSERT_EQ(a.groups().size(), 2u);
  EXPECT_EQ(a.Names(a.groups()[0].nodes), "s h");
  EXPECT_EQ(a.Names(a.groups()[1].nodes), "db ds da");
  // Backward reads %a anyway, so it recomputes %s and forward does not keep it.
  EXPECT_EQ(a.Names(a.groups()[1].repeated), "s");
  EXPECT_EQ(a.Stored(0), "h");
  EXPECT_EQ(a.Stored(1), "db da");
}

TEST(KernelGroups, KeepValuesThatOthersRead) {
  std::string text = kSwiGlu;
  text.replace(text.find("(%y, %da2"), 9, "(%y, %s, %da2");
  EXPECT_EQ(Arranged(text).Stored(0), "s h");
}

// %v exists only in registers of the first group.
TEST(KernelGroups, ComputeAgainFromValuesThatTheyRead) {
  Arranged a(R"(heddle 1 local
graph @g(%x: bf16[64,16], %z: bf16[1024], %w: bf16[16,16]) -> (%db, %c) {
  %a = aten.neg(%x)
  %v = aten.view(%a, size=[1024])
  %s = aten.silu(%v)
  %h = aten.mul.Tensor(%s, %z)
  %h2 = aten.view(%h, size=[64,16])
  %m = aten.mm(%h2, %w)
  %m2 = aten.view(%m, size=[1024])
  %db = aten.mul.Tensor(%m2, %s)
  %v2 = aten.view(%a, size=[8,128])
  %m3 = aten.view(%m, size=[8,128])
  %c = aten.mul.Tensor(%m3, %v2)
}
)");
  ASSERT_EQ(a.groups().size(), 2u);
  EXPECT_EQ(a.Names(a.groups()[0].nodes), "a v s h");
  EXPECT_EQ(a.Names(a.groups()[1].nodes), "db c");
  EXPECT_EQ(a.Names(a.groups()[1].repeated), "");
  EXPECT_EQ(a.Stored(0), "a s h");
}

TEST(KernelGroups, HaveNoPathThatLeavesAndComesBack) {
  Arranged a(R"(heddle 1 local
graph @g(%x: bf16[32,32], %w: bf16[32,32]) -> (%d) {
  %a = aten.add.Tensor(%x, %w)
  %b = aten.mul.Tensor(%a, %w)
  %m = aten.mm(%b, %w)
  %c = aten.add.Tensor(%a, %m)
  %d = aten.mul.Tensor(%c, %x)
}
)");
  ASSERT_EQ(a.groups().size(), 2u);
  EXPECT_EQ(a.Names(a.groups()[0].nodes), "a b");
  EXPECT_EQ(a.Names(a.groups()[1].nodes), "c d");
  EXPECT_EQ(a.Stored(0), "a b");
}

TEST(KernelGroups, StayBetweenNodesWithEffects) {
  Arranged a(R"(heddle 1 local
graph @g(%x: f32[32]) -> (%c) {
  %a = aten.add.Tensor(%x, %x)
  %r = aten.bernoulli(%x)
  %b = aten.mul.Tensor(%a, %r)
  %c = aten.neg(%b)
}
)");
  ASSERT_EQ(a.groups().size(), 1u);
  EXPECT_EQ(a.Names(a.groups()[0].nodes), "b c");
}

TEST(KernelGroups, TakeViewsBetweenTheirNodes) {
  Arranged a(R"(heddle 1 local
graph @g(%x: bf16[2,4,3,8], %rope: c64[1,4,1,4]) -> (%t, %pairs) {
  %wide = aten._to_copy(%x, dtype=f32)
  %pairs = aten.view(%wide, size=[2,4,3,4,2])
  %c = aten.view_as_complex(%pairs)
  %m = aten.mul.Tensor(%c, %rope)
  %r = aten.view_as_real(%m)
  %flat = aten.view(%r, size=[2,4,3,8])
  %narrow = aten._to_copy(%flat, dtype=bf16)
  %t = aten.transpose.int(%narrow, dim0=1, dim1=2)
}
)");
  ASSERT_EQ(a.groups().size(), 1u);
  EXPECT_EQ(a.Names(a.groups()[0].nodes), "wide pairs c m r flat narrow");
  // A view that is an output keeps its value.
  EXPECT_EQ(a.Stored(0), "wide narrow");
  KernelProgram program = WriteProgram(a.graph(), a.groups()[0], {});
  // Element (t, c) of the table, for the lane `at` of [2,4,3,8].
  EXPECT_NE(program.text.find("a1 + (at / 24 % 4 * 8 + at % 8)"), std::string::npos)
      << program.text;
}

TEST(KernelGroups, PutNormsWithElementsAroundThem) {
  Arranged a(R"(heddle 1 local
graph @g(%x: bf16[4,64], %r: bf16[4,64], %w: bf16[64]) -> (%y, %rstd, %h) {
  %h = aten.add.Tensor(%x, %r)
  %y, %rstd = aten._fused_rms_norm(%h, normalized_shape=[64], weight=%w, eps=1e-05)
}
)");
  ASSERT_EQ(a.groups().size(), 1u);
  EXPECT_EQ(a.groups()[0].form, KernelGroup::Form::kRows);
  EXPECT_EQ(a.Names(a.groups()[0].nodes), "h y");
  EXPECT_EQ(a.Stored(0), "h y rstd");
}

// The gradient of the weight has its own kernel, which reads %dh.
TEST(KernelGroups, PutGradientsOfNormsWithElementsAroundThem) {
  Arranged a(R"(heddle 1 local
graph @g(%x: bf16[4,64], %dy: bf16[4,64], %w: bf16[64], %rstd: f32[4,1]) -> (%dz, %dw) {
 bwd:
  %dh = aten.add.Tensor(%dy, %dy)
  %dx, %dw = aten._fused_rms_norm_backward(%dh, %x, %rstd, normalized_shape=[64], weight=%w,
      output_mask=[true,true])
  %dz = aten.add.Tensor(%dx, %dy)
}
)");
  ASSERT_EQ(a.groups().size(), 1u);
  EXPECT_EQ(a.Names(a.groups()[0].nodes), "dh dx dz");
  StoredValues values = StoredValuesOf(a.graph(), Uses(a.graph()), a.groups(), 0);
  ASSERT_EQ(values.stored.size(), 2u);
  EXPECT_EQ(a.graph().name(values.stored[0]), "dz");
  EXPECT_EQ(a.graph().name(values.stored[1]), "dh");
  ASSERT_TRUE(values.weight.has_value());
  EXPECT_EQ(a.graph().name(values.weight->result), "dw");
}

TEST(KernelGroups, CastWeightsAndGradientsTogether) {
  Arranged a(R"(heddle 1 local
graph @g(%v: f32[8,8], %w: f32[8,8], %x: bf16[8,8])
    -> (grad 0 %gv, grad 1 %gw) {
  %v16 = aten._to_copy(%v, dtype=bf16)
  %a = aten.mm(%x, %v16)
  %w16 = aten._to_copy(%w, dtype=bf16)
  %b = aten.mm(%a, %w16)
 bwd:
  %db = aten.mm(%b, %w16)
  %gw = aten._to_copy(%db, dtype=f32)
  %dv = aten.mm(%db, %v16)
  %gv = aten._to_copy(%dv, dtype=f32)
}
)");
  ASSERT_EQ(a.groups().size(), 2u);
  EXPECT_EQ(a.Names(a.groups()[0].nodes), "v16 w16");
  EXPECT_EQ(a.Names(a.groups()[1].nodes), "gw gv");
}

// Two weights, whose activations are larger than their gradients.
constexpr const char* kWeights = R"(heddle 1 local
graph @g(%v: f32[8,8] param 0 "v", %w: f32[8,8] param 1 "w", %vm: f32[8,8] opt 0 "exp_avg",
         %wm: f32[8,8] opt 1 "exp_avg", %vv: f32[8,8] opt 0 "exp_avg_sq",
         %wv: f32[8,8] opt 1 "exp_avg_sq", %x: bf16[512,8] batch "x", %lr: f32[] hyper "lr",
         %step: f32[] hyper "step")
    -> (metric "b" %s, update %v -> %v2, update %w -> %w2, update %vm -> %vm2,
        update %wm -> %wm2, update %vv -> %vv2, update %wv -> %wv2) {
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

std::string With(std::string text, const std::string& from, const std::string& to) {
  size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::set<int64_t> ParamsWithCopies(const std::string& text) {
  return CopiedParams(ArrangeStep(Parsed(text).graphs[0]));
}

TEST(WeightCopies, ReplaceTheCastsOfUpdatedParameters) {
  Module module = Parsed(kWeights);
  const Graph& graph = module.graphs[0];
  auto launches = [&](const std::optional<std::set<int64_t>>& copies) {
    std::map<std::string, Bytes> bytes;
    for (const KernelLaunch& launch : ListLaunches(graph, copies).launches)
      bytes[launch.name] += launch.bytes;
    return bytes;
  };
  EXPECT_EQ(ParamsWithCopies(kWeights), (std::set<int64_t>{0, 1}));
  auto with = launches(std::nullopt);
  auto without = launches(std::set<int64_t>());
  // The casts of both gradients remain, and AdamW writes both copies.
  EXPECT_EQ(without.at("casts").value - with.at("casts").value, 2 * 64 * 6);
  EXPECT_EQ(with.at("adamw").value - without.at("adamw").value, 2 * 64 * 2);
  KernelMemory memory = MemoryWithKernels(graph);
  EXPECT_EQ(memory.copies.value, 2 * 64 * 2);
  EXPECT_EQ(memory.peak, MemoryWithKernels(graph, std::set<int64_t>()).peak);
  // Another graph of the run has the copies that the step decides on.
  KernelMemory one = MemoryWithKernels(graph, std::set<int64_t>{1, 7});
  EXPECT_EQ(one.copied, std::set<int64_t>{1});
  EXPECT_EQ(one.copies.value, 64 * 2);
}

TEST(WeightCopies, ExistOnlyWhereNothingElseChanges) {
  // The caller gets the cast, or a view of it.
  EXPECT_EQ(ParamsWithCopies(With(kWeights, "%s, update", "%s, metric \"w\" %w16, update")),
            std::set<int64_t>{0});
  EXPECT_EQ(ParamsWithCopies(With(kWeights, "%s, update", "%s, metric \"w\" %wt, update")),
            std::set<int64_t>{0});
  // A single update runs through ATen.
  EXPECT_EQ(ParamsWithCopies(With(kWeights, "[%wv], [], [%step], %lr, beta1=0.9",
                                  "[%wv], [], [%step], %lr, beta1=0.8")),
            std::set<int64_t>());
  // Another op computes the weight.
  EXPECT_EQ(ParamsWithCopies(With(With(kWeights, "  %w16 =", "  %n = aten.neg(%w)\n  %w16 ="),
                                  "_to_copy(%w,", "_to_copy(%n,")),
            std::set<int64_t>{0});
  // The peak is at the end of backward, so every copy would raise it.
  std::string narrow = With(kWeights, "bf16[512,8]", "bf16[1,8]");
  EXPECT_EQ(ParamsWithCopies(narrow), std::set<int64_t>());
}

TEST(Broadcast, FindsTheElementOfALane) {
  Module module = Parsed(R"(heddle 1 local
graph @g(%x: f32[2,3,16], %row: f32[16], %one: f32[], %column: f32[3,1], %narrow: f32[2,1,16],
         %odd: f32[2,3,1]) -> (%y) {
  %y = aten.neg(%x)
}
)");
  const Graph& graph = module.graphs[0];
  auto index = [&](std::string_view name) {
    std::optional<Broadcast> found =
        BroadcastOf(graph, graph.FindValue(name), graph.FindValue("y"));
    return found ? (found->uniform ? "one " : "vector ") + found->index : std::string("none");
  };
  EXPECT_EQ(index("row"), "vector at % 16");
  EXPECT_EQ(index("one"), "one 0");
  EXPECT_EQ(index("column"), "one at / 16 % 3 * 1");
  EXPECT_EQ(index("narrow"), "vector at / 48 % 2 * 16 + at % 16");
  EXPECT_EQ(index("odd"), "one at / 16 % 6 * 1");
}

// The gradient of the input first: after it the weight is not needed. In forward, and where the
// weight is needed later, nothing moves.
TEST(MatmulOrder, FreesWeightsEarly) {
  std::string text = R"(heddle 1 local
graph @g(%x: bf16[16,64], %master: f32[64,512], %dy: bf16[16,512]) -> (%y, %dw, %dx) {
  %w = aten._to_copy(%master, dtype=bf16)
  %y = aten.mm(%x, %w)
 bwd:
  %xt = aten.t(%x)
  %dw = aten.mm(%xt, %dy)
  %wt = aten.t(%w)
  %dx = aten.mm(%dy, %wt)
}
)";
  auto order = [](const std::string& graph) {
    Arranged arranged(graph);
    std::string names;
    for (NodeId node : arranged.graph().nodes())
      names += " " + std::string(arranged.graph().name(arranged.graph()[node].first_result));
    return names;
  };
  EXPECT_EQ(order(text), " w y xt wt dx dw");
  text.replace(text.find("%dx) {"), 6, "%dx, %w) {");
  EXPECT_EQ(order(text), " w y xt dw wt dx");
}

}  // namespace
}  // namespace heddle
