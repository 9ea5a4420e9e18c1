// Clusters, kernels, curves and measured tables.
#include <cmath>

#include <gtest/gtest.h>

#include "heddle/core/base/clock.h"
#include "heddle/core/base/json.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/cost/cost_model.h"
#include "heddle/price/cost/kernel_time.h"

namespace heddle::price {
namespace {

// A group of `nodes` nodes with `per_node` ranks on each.
GroupShape EvenGroup(int64_t nodes, int64_t per_node) {
  return {nodes * per_node, nodes, per_node, per_node};
}

std::string Text(const Diagnostics& diagnostics) { return Format(diagnostics); }

TEST(Rate, LogarithmsAndPowersAreThoseOfTheLibrary) {
  for (double x = 1e-6; x < 1e18; x *= 1.37) {
    EXPECT_NEAR(Log2(x), std::log2(x), 1e-13 * (1 + std::abs(std::log2(x))));
    EXPECT_NEAR(Exp2(Log2(x)) / x, 1, 1e-12);
    EXPECT_NEAR(Pow(x, 0.65) / std::pow(x, 0.65), 1, 1e-12);
  }
  for (int i = -20; i < 60; ++i) EXPECT_EQ(Log2(std::ldexp(1.0, i)), i);
}

TEST(Cluster, AllThatTheBinaryCarriesCanBeRead) {
  ASSERT_EQ(BuiltInClusters().size(), 7u);
  for (const NamedCluster& named : BuiltInClusters()) {
    Result<Cluster> cluster = LoadCluster(std::string(named.name));
    ASSERT_TRUE(cluster.ok()) << Text(cluster.diagnostics());
    EXPECT_EQ(cluster->name, named.name);
  }
}

// Every figure needs a source.
void FindUnsourced(JsonValue value, const std::string& path, JsonValue sources,
                   std::vector<std::string>& missing) {
  if (sources.Find(path)) return;
  if (value.is_object()) {
    for (auto [key, field] : value.fields())
      FindUnsourced(field, fmt::format("{}{}{}", path, path.empty() ? "" : "/", key), sources,
                    missing);
  } else if (value.is_number() || value.is_array()) {
    missing.push_back(path);
  }
}
TEST(Cluster, IsFoundByWhatDriversCallItsDevices) {
  std::optional<Cluster> found = ClusterOfDevice("NVIDIA H200");
  ASSERT_TRUE(found);
  EXPECT_EQ(found->name, "h200-8x");
  // The PCIe card is slower.
  EXPECT_FALSE(ClusterOfDevice("NVIDIA H100 PCIe"));
  EXPECT_FALSE(ClusterOfDevice(""));
}

TEST(Cluster, EveryFigureHasASource) {
  for (const NamedCluster& named : BuiltInClusters()) {
    JsonDocument document =
        *JsonDocument::Parse(std::string(named.text), std::string(named.name), Diag::kJson);
    std::vector<std::string> missing;
    FindUnsourced(document.root(), "", *document.root().Find("sources"), missing);
    // These describe the cluster; they are not measured figures.
    std::erase(missing, "devices_per_node");
    std::erase(missing, "device/names");
    EXPECT_TRUE(missing.empty()) << named.name << ": " << missing[0];
  }
}

Nanos TimeOf(const std::string& cluster, const std::string& signature, const std::string& call) {
  std::string text = "heddle 1 local\ngraph @g(" + signature + ") -> () {\n  " + call + "\n}\n";
  Result<Module> module = ParseModule(text, "test", Ops());
  EXPECT_TRUE(module.ok()) << Text(module.diagnostics());
  CostModel model = *CostModel::Make(*LoadCluster(cluster), {});
  return model.Price(*module, module->graphs[0])->nodes[NodeId(0)].compute;
}

TEST(Kernel, LargeProductIsNearWhatAnH200Measured) {
  Nanos time =
      TimeOf("h200-8x", "%a: bf16[8192,8192], %b: bf16[8192,8192]", "%c = aten.mm(%a, %b)");
  EXPECT_NEAR(Millis(time), 1.39, 0.15 * 1.39);
}

TEST(Kernel, NarrowTypesAreFasterAndMemoryBoundsTheRest) {
  std::string operands = "%a: f32[4096,4096], %b: f32[4096,4096]";
  std::string narrow = "%a: bf16[4096,4096], %b: bf16[4096,4096]";
  EXPECT_GT(TimeOf("h100-8x", operands, "%c = aten.mm(%a, %b)").value,
            8 * TimeOf("h100-8x", narrow, "%c = aten.mm(%a, %b)").value);
  // Reads and writes 128 MiB each at 3352 GB/s times 0.895, plus a launch and a twelfth of the
  // arithmetic.
  Nanos add = TimeOf("h100-8x", "%a: bf16[8192,8192]", "%c = aten.neg(%a)");
  double memory = 2.0 * 134217728 / (3352 * 0.895);
  double arithmetic = 67108864 / 66900.0;
  EXPECT_NEAR(static_cast<double>(add.value), memory + 0.0816 * arithmetic + 1300, 2);
}

TEST(Kernel, ViewsAreFreeAndUnknownOpsCostTheirBytes) {
  EXPECT_EQ(TimeOf("h100-8x", "%a: f32[64,64]", "%c = aten.t(%a)").value, 0);
  EXPECT_EQ(TimeOf("h100-8x", "%a: f32[0,64]", "%c = aten.neg(%a)").value, 0);
  Nanos mystery = TimeOf("h100-8x", "%a: f32[1024,1024]", "%c = aten.mystery(%a) : f32[1024,1024]");
  Nanos neg = TimeOf("h100-8x", "%a: f32[1024,1024]", "%c = aten.neg(%a) : f32[1024,1024]");
  EXPECT_EQ(mystery, neg);
}

ProductShape ProductOf(const std::string& signature, const std::string& call) {
  std::string text = "heddle 1 local\ngraph @g(" + signature + ") -> () {\n  " + call + "\n}\n";
  Module module = *ParseModule(text, "test", Ops());
  Graph& graph = module.graphs[0];
  NodeId id(0);
  OpArgs args(graph.op(id), graph.attrs(id), module.mesh, graph.types().symbols(),
              OperandTypes(graph, graph.operands(id)));
  return *ShapeOfProduct(args, {graph.types()[graph.type(graph[id].first_result)]});
}
void ExpectShape(const ProductShape& s, double batch, double rows, double columns, double depth) {
  EXPECT_EQ(s.batch, batch);
  EXPECT_EQ(s.rows, rows);
  EXPECT_EQ(s.columns, columns);
  EXPECT_EQ(s.depth, depth);
}

TEST(Kernel, ProductsAreReadOffTheFactors) {
  ExpectShape(ProductOf("%a: f32[8,16], %b: f32[16,4]", "%c = aten.mm(%a, %b)"), 1, 8, 4, 16);
  ExpectShape(ProductOf("%a: f32[3,8,16], %b: f32[3,16,4]", "%c = aten.bmm(%a, %b)"), 3, 8, 4, 16);
  ExpectShape(ProductOf("%s: f32[4], %a: f32[8,16], %b: f32[16,4]", "%c = aten.addmm(%s, %a, %b)"),
              1, 8, 4, 16);
  ExpectShape(ProductOf("%a: f32[2,3,8], %b: f32[8,4]",
                        "%c = aten.einsum([%a, %b], equation=\"bsk,kn->bsn\")"),
              1, 6, 4, 8);
  std::string offsets = ", %o: i32[4]";
  ExpectShape(ProductOf("%a: bf16[32,16], %b: bf16[4,16,8]" + offsets,
                        "%c = aten._grouped_mm(%a, %b, offs=%o)"),
              4, 8, 8, 16);
  ExpectShape(ProductOf("%a: bf16[16,32], %b: bf16[32,8]" + offsets,
                        "%c = aten._grouped_mm(%a, %b, offs=%o)"),
              4, 16, 8, 8);
  ExpectShape(ProductOf("%a: bf16[4,16,8], %b: bf16[8,32]" + offsets,
                        "%c = aten._grouped_mm(%a, %b, offs=%o)"),
              4, 16, 8, 8);
}

TEST(Kernel, HalfOfACausalAttentionIsLeftOut) {
  std::string types = "%q: bf16[2,32,4096,128], %k: bf16[2,8,4096,128], %v: bf16[2,8,4096,128]";
  std::string op =
      "%c, %l, %a, %b, %s, %u, %d = aten._scaled_dot_product_flash_attention(%q, %k, %v";
  Nanos all = TimeOf("h100-8x", types, op + ")");
  Nanos causal = TimeOf("h100-8x", types, op + ", is_causal=true)");
  EXPECT_NEAR(static_cast<double>(causal.value) / static_cast<double>(all.value), 0.5, 0.06);
}

// Without a load balancer, some rank sees all keys of every other one. In head-tail order, a step
// has half of the pairs.
TEST(Kernel, StepsOfARingComputeWhatTheyLeave) {
  auto time = [](std::string_view role, int64_t step) {
    std::string text = fmt::format(
        "heddle 1 local\nmesh [cp=8{}]\n"
        "graph @g(%q: bf16[1,32,4096,128], %k: bf16[1,8,4096,128]) -> () {{\n"
        "  %o, %l = shard.attention(%q, %k, %k, over=[cp], step={})\n}}\n",
        role, step);
    Module module = *ParseModule(text, "test", Ops());
    CostModel model = *CostModel::Make(*LoadCluster("h100-8x"), {});
    return static_cast<double>(
        (*model.Price(module, module.graphs[0])).nodes[NodeId(0)].compute.value);
  };
  double own = time("", 0);
  EXPECT_NEAR(own / time("", 1), 0.5, 0.1);
  EXPECT_NEAR(time(" headtail", 1) / own, 1, 0.06);
  EXPECT_EQ(time(" headtail", 0), own);
}

TEST(Collective, AShiftIsATransferBetweenNeighbours) {
  auto time = [](std::string_view mesh, std::string_view over) {
    std::string text = fmt::format(
        "heddle 1 local\nmesh [{}]\ngraph @g(%x: bf16[1048576]) -> () {{\n"
        "  %s! = comm.shift(%x, over=[{}], why=context)\n"
        "  %s = comm.wait(%s!)\n}}\n",
        mesh, over);
    Module module = *ParseModule(text, "test", Ops());
    CostModel model = *CostModel::Make(*LoadCluster("h100-8x"), {});
    return (*model.Price(module, module.graphs[0])).nodes[NodeId(0)].collective.total();
  };
  Nanos near = time("cp=8", "cp");
  EXPECT_EQ(near, time("cp=2", "cp"));
  EXPECT_EQ(near, time("dp=8, cp=8", "cp"));
  EXPECT_GT(time("cp=16", "cp"), near);
  EXPECT_EQ(time("dp=8, cp=1", "cp"), Nanos{});
}

// --- Curves

Curve Measured(Interpolation interpolation) {
  Curve curve;
  curve.interpolation = interpolation;
  curve.points = {{MiB(1), {1000}}, {MiB(2), {1500}}, {MiB(8), {4500}}};
  return curve;
}
TEST(Curve, LogarithmicLinesMeetThePointsAndNeverFall) {
  Curve curve = Measured(Interpolation::kLog);
  for (const Curve::Point& point : curve.points) EXPECT_EQ(curve.At(point.bytes), point.time);
  EXPECT_EQ(curve.At({1}).value, 1000);
  // Halfway on both scales: the geometric mean.
  EXPECT_NEAR(static_cast<double>(curve.At(MiB(4)).value), std::sqrt(1500.0 * 4500), 1);
  // Extrapolated along the last two points: 500 ns for each MiB.
  EXPECT_EQ(curve.At(MiB(10)).value, 5500);
  Nanos before;
  for (int64_t bytes = 1; bytes < (int64_t{1} << 40); bytes += bytes / 5 + 1) {
    EXPECT_GE(curve.At({bytes}), before);
    before = curve.At({bytes});
  }
}
TEST(Curve, ColumnsAreReadAsAutoParallelReadsThem) {
  Curve curve = Measured(Interpolation::kColumns);
  EXPECT_EQ(curve.At({100}).value, 1000);
  // 1.9 MiB costs as much as 1 MiB.
  EXPECT_EQ(curve.At({MiB(2).value - 100'000}).value, 1000);
  EXPECT_EQ(curve.At(MiB(5)).value, 3000);
  EXPECT_EQ(curve.At({MiB(8).value + 1}).value, 4500);
  EXPECT_EQ(curve.At(MiB(9)).value, 5000);
}

constexpr std::string_view kAutoParallelTable =
    "  Group    Group Size  Collective                    1MB (ms)    2MB (ms)    4MB (ms)\n"
    "-------  ------------  --------------------------  ----------  ----------  ----------\n"
    "      1             8  all_reduce                      0.028       0.041       0.0628\n"
    "      0             8  all_gather_into_tensor_out      0.2397      0.4059      0.7181\n"
    "      0             8  all_gather_into_tensor          0.2397      0.4059      0.7181\n"
    "     dp             4  reduce_scatter_tensor           0.1         0.2         0.4\n";

TEST(Measured, TablesAreRead) {
  Result<MeasuredCosts> costs = ParseCosts(kAutoParallelTable, "t.table");
  ASSERT_TRUE(costs.ok()) << Text(costs.diagnostics());
  ASSERT_EQ(costs->curves.size(), 3u);
  Mesh mesh({{"dp", 4}, {"tp", 8}});
  Result<const Curve*> gather =
      costs->FindCurve(CollectiveKind::kAllGather, mesh, Axes(1), EvenGroup(1, 8));
  ASSERT_TRUE(gather.ok());
  EXPECT_EQ((*gather)->At(MiB(3)).value, 562000);
  EXPECT_EQ(*costs->FindCurve(CollectiveKind::kReduceScatter, mesh, Axes(1), EvenGroup(1, 8)),
            nullptr);
  EXPECT_EQ(
      (*costs->FindCurve(CollectiveKind::kReduceScatter, mesh, Axes(0), EvenGroup(4, 1)))->over,
      "dp");
  // A curve that names axes applies only to them.
  Mesh same({{"a", 4}, {"dp", 4}});
  EXPECT_EQ(*costs->FindCurve(CollectiveKind::kReduceScatter, same, Axes(0), EvenGroup(4, 1)),
            nullptr);
}

void ExpectMistake(std::string_view text, std::string_view part) {
  Result<MeasuredCosts> costs = ParseCosts(text, "c.json");
  ASSERT_FALSE(costs.ok()) << text;
  EXPECT_NE(Text(costs.diagnostics()).find(part), std::string::npos)
      << Text(costs.diagnostics()) << "lacks " << part;
}

TEST(Measured, MistakesAreNamed) {
  ExpectMistake("{", "c.json:1:2: not JSON: expected a key in quotes [json]");
  ExpectMistake(R"({"heddle": "costs 2"})", "`heddle` is \"costs 2\", expected one of `costs 1`");
  ExpectMistake(R"({"heddle": "costs 1", "nodes": {"a": -1}})",
                "`nodes.a` is -1, expected a number of at least 0");
  ExpectMistake(R"({"heddle": "costs 1", "nodes": {"a": 1, "a": 2}})",
                "the key `a` is given twice");
  ExpectMistake(R"({"heddle": "costs 1", "node": {}})",
                "`node` is not a field here; nearest is `nodes`");
  ExpectMistake(R"({"heddle": "costs 1", "ops": [{"op": "aten.mm", "operands": [1], "ms": 1}]})",
                "`ops[0].operands` is not a list of texts");
  std::string curve =
      R"({"heddle": "costs 1", "collectives": [{"kind": "all_gather", "ranks": 8, "points": )";
  ExpectMistake(curve + "[[1, 2], [2, null]]}]}", "`collectives[0].points[1][1]` is null");
  ExpectMistake(curve + "[[1, 2], [2]]}]}",
                "`collectives[0].points[1]` is not a list of 2 numbers");
  ExpectMistake(curve + "[[1, 2], [1, 3]]}]}", "has 1 bytes after 1, expected increasing sizes");
  ExpectMistake(curve + "[[1, 2], [2, -3]]}]}", "is -3, expected a number of at least 0");
  ExpectMistake(curve + "[[1, 2]]}]}", "has 1 points, expected at least 2");
  ExpectMistake(
      R"({"heddle": "costs 1", "collectives": [{"kind": "gather", "ranks": 8, "points": [[1,1],[2,2]]}]})",
      "`collectives[0].kind` is \"gather\"");
  ExpectMistake(R"({"heddle": "costs 1", "nodes": {"a": 1e999}})", "[json]");
  ExpectMistake(std::string(100'000, '[') + std::string(100'000, ']'), "[costs-file]");
  ExpectMistake("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}",
                "nested more than 1000 levels deep");
  std::string header = "Group  Group Size  Collective  1MB (ms)  2MB (ms)\n";
  ExpectMistake(header + "0 8 all_reduce 0.1\n", "c.json:2:1: a row of 1 times, expected 2");
  ExpectMistake(header + "0 8 all_reduce 0.1 -0.2\n", "`-0.2` is not a time");
  ExpectMistake(header + "0 8 all_reduce 0.1 nan\n", "`nan` is not a time");
  ExpectMistake(header + "0 0 all_reduce 0.1 0.2\n", "group size `0`");
  ExpectMistake(header + "0 8 broadcast 0.1 0.2\n", "`broadcast` is not a collective");
  ExpectMistake("Group 2MB 1MB\n", "column `1MB` is not a larger size");
  ExpectMistake("", "an empty table");
  ExpectMistake("hello\n", "not a header");
}

TEST(Measured, OneCurveMustFit) {
  std::string text = std::string(kAutoParallelTable) + "      2             8  all_reduce  1 2 3\n";
  MeasuredCosts costs = *ParseCosts(text, "t.table");
  Mesh mesh({{"tp", 8}});
  Result<const Curve*> curve =
      costs.FindCurve(CollectiveKind::kAllReduce, mesh, Axes(0), EvenGroup(1, 8));
  ASSERT_FALSE(curve.ok());
  EXPECT_EQ(Text(curve.diagnostics()),
            "t.table: all_reduce over [tp] matches groups `1` and `2`, both of 8 ranks; "
            "name the group after the axes [costs-file]\n");
}

// One launch instead of many is worth the packing, but packing takes time.
TEST(Costs, ABucketOfSmallTensorsIsCheaperThanItsTensors) {
  std::string inputs;
  std::string operands;
  std::string types;
  std::string names;
  for (int i = 0; i < 64; ++i) {
    std::string comma = i == 0 ? "" : ", ";
    inputs += fmt::format("{}%p{}: bf16[256]", comma, i);
    operands += fmt::format("{}%p{}", comma, i);
    types += comma + "bf16[16384]";
    names += fmt::format("{}%w{}", comma, i);
  }
  std::string text = "heddle 1 local\nmesh [dp=64]\ngraph @g(" + inputs +
                     ") -> () {\n  %b! = comm.all_gather(" + operands +
                     ", over=[dp], why=unshard) : async (" + types + ")\n  " + names +
                     " = comm.wait(%b!) : (" + types +
                     ")\n  %s! = comm.all_gather(%p0, over=[dp], why=unshard) : async "
                     "bf16[16384]\n  %s = comm.wait(%s!) : bf16[16384]\n}\n";
  Result<Module> module = ParseModule(text, "test", Ops());
  ASSERT_TRUE(module.ok()) << Text(module.diagnostics());
  CostModel model = *CostModel::Make(*LoadCluster("h100-8x"), {});
  GraphCosts costs = *model.Price(*module, module->graphs[0]);
  auto whole = [&](size_t start) {
    const NodeCost& cost = costs.nodes[NodeId(start)];
    return cost.pack + cost.collective.total() + costs.nodes[NodeId(start + 1)].compute;
  };
  EXPECT_LT(whole(0), whole(2) * 64);
  EXPECT_GT(whole(0), whole(2));
  EXPECT_GT(costs.nodes[NodeId(0)].pack.value, 0);
  EXPECT_GT(costs.nodes[NodeId(1)].compute.value, 0);
  EXPECT_EQ(costs.nodes[NodeId(2)].pack.value, 0);
}

// Compute and collectives of a small step with `rows` rows on `ranks` ranks.
Nanos TimeOfStep(const Cluster& cluster, Execution execution, int64_t rows, int64_t ranks) {
  std::string in = fmt::format("bf16[{},1024]", rows);
  std::string text = fmt::format(
      "heddle 1 local\nmesh [dp={0}]\n"
      "graph @g(%x: {1}, %w: bf16[1024,1024]) -> (%e) {{\n"
      "  %a = aten.mm(%x, %w) : {1}\n"
      "  %b = aten.silu(%a) : {1}\n"
      "  %s = aten.sum.dim_IntList(%b, dim=[1], keepdim=true) : bf16[{2},1]\n"
      "  %c = aten.mul.Tensor(%b, %s) : {1}\n"
      "  %d! = comm.all_reduce(%c, over=[dp], why=tensor) : async {1}\n"
      "  %d = comm.wait(%d!) : {1}\n"
      "  %e = aten.exp(%d) : {1}\n}}\n",
      ranks, in, rows);
  Result<Module> module = ParseModule(text, "test", Ops());
  EXPECT_TRUE(module.ok()) << Text(module.diagnostics());
  CostOptions options;
  options.execution = execution;
  options.fused = true;
  GraphCosts costs = *CostModel::Make(cluster, options)->Price(*module, module->graphs[0]);
  Nanos sum;
  for (NodeId id : module->graphs[0].nodes())
    sum += costs.nodes[id].compute + costs.nodes[id].collective.total();
  return sum;
}

TEST(Costs, MoreWorkMoreNodesAndSlowerMemoryNeverMakeAStepFaster) {
  for (const NamedCluster& named : BuiltInClusters()) {
    Cluster cluster = *LoadCluster(std::string(named.name));
    Cluster slower = cluster;
    slower.device.bandwidth.per_nano *= 0.9;
    Cluster thinner = cluster;
    thinner.network_rate.per_nano *= 0.9;
    for (Execution execution : {Execution::kHeddle, Execution::kEager, Execution::kCompiled}) {
      Nanos last;
      for (int64_t rows = 1; rows <= 1 << 17; rows = rows * 3 / 2 + 1) {
        Nanos time = TimeOfStep(cluster, execution, rows, 16);
        EXPECT_GE(time, last) << named.name << " " << Name(execution) << " " << rows;
        EXPECT_GE(TimeOfStep(slower, execution, rows, 16), time) << named.name << " " << rows;
        EXPECT_GE(TimeOfStep(thinner, execution, rows, 16), time) << named.name << " " << rows;
        last = time;
      }
      last = {};
      for (int64_t ranks = 8; ranks <= 4096; ranks *= 2) {
        Nanos time = TimeOfStep(cluster, execution, 4096, ranks);
        EXPECT_GE(time, last) << named.name << " " << Name(execution) << " " << ranks;
        last = time;
      }
    }
  }
}

TEST(Costs, TheSameOnEveryCall) {
  Cluster cluster = *LoadCluster("h100-8x");
  Mesh mesh({{"dp", 16}, {"tp", 8}});
  for (CollectiveModel which : {CollectiveModel::kNative, CollectiveModel::kNccl}) {
    CostModel model = *CostModel::Make(cluster, {.nodes = {}, .collectives = which});
    CollectiveCosts costs(model, mesh);
    CollectiveCosts again(model, mesh);
    for (int64_t bytes : {1, 100, 1 << 20, 1 << 30}) {
      CollectiveCost a = *costs.Cost(CollectiveKind::kAllGather, {bytes}, Axes(0));
      CollectiveCost b = *again.Cost(CollectiveKind::kAllGather, {bytes}, Axes(0));
      EXPECT_EQ(a.total(), b.total());
      EXPECT_EQ(a.links, Links::kNetwork);
      EXPECT_EQ(costs.Cost(CollectiveKind::kAllGather, {bytes}, Axes(1))->links, Links::kNode);
      EXPECT_GT(a.latency.value, 0);
    }
  }
}

}  // namespace
}  // namespace heddle::price
