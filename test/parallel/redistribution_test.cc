// Tests redistributions between any two placements: correct data with the fewest collectives.
#include <iostream>

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>

#include "heddle/compile/manager/manager.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/compile/shard/redistribution.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/runtime/rank_program.h"
#include "heddle/run/runtime/shards.h"
#include "test/parallel/all_placements.h"

namespace heddle {
namespace {

struct Setting {
  const char* name;
  std::vector<MeshAxis> mesh;
  Dims dims;
  // Runs every N-th pair on ranks; checks the collectives of all pairs.
  size_t stride = 1;
  // The planner does not use axes that the target does not split. Splitting along them temporarily
  // never saves a collective, but can save elements if sizes are rounded up. For these pairs, only
  // the number of collectives is checked.
  bool rounded = false;
};

void PrintTo(const Setting& setting, std::ostream* out) { *out << setting.name; }

const std::vector<Setting>& Settings() {
  static const std::vector<Setting> settings = {
      {"2_even", {{"a", 2}}, {4}},
      {"2_uneven", {{"a", 2}}, {5}},
      {"2_2d", {{"a", 2}}, {4, 3}},
      {"4_even", {{"a", 4}}, {8}},
      {"4_empty", {{"a", 4}}, {5}},
      {"4_2d", {{"a", 4}}, {6, 1}},
      {"2x2_even", {{"a", 2}, {"b", 2}}, {8}},
      {"2x2_uneven", {{"a", 2}, {"b", 2}}, {7}},
      {"2x2_2d_even", {{"a", 2}, {"b", 2}}, {8, 4}},
      {"2x2_2d_uneven", {{"a", 2}, {"b", 2}}, {5, 3}},
      {"2x3_even", {{"a", 2}, {"b", 3}}, {12}},
      {"2x3_uneven", {{"a", 2}, {"b", 3}}, {7}},
      {"2x3_2d_even", {{"a", 2}, {"b", 3}}, {6, 12}},
      {"2x3_2d_uneven", {{"a", 2}, {"b", 3}}, {7, 5}},
      {"2x2x2_even", {{"a", 2}, {"b", 2}, {"c", 2}}, {8}},
      {"2x2x2_uneven", {{"a", 2}, {"b", 2}, {"c", 2}}, {11}, 1, true},
      {"2x2x2_2d_even", {{"a", 2}, {"b", 2}, {"c", 2}}, {8, 16}},
      {"2x2x2_2d_uneven", {{"a", 2}, {"b", 2}, {"c", 2}}, {5, 7}},
      // Gathering a dimension of size 1 is free, which could mislead the planner.
      {"2x2_3d", {{"a", 2}, {"b", 2}}, {2, 1, 16}},
      {"2x3_3d", {{"a", 2}, {"b", 3}}, {1, 5, 1}},
      {"2x2x2_3d", {{"a", 2}, {"b", 2}, {"c", 2}}, {2, 1, 16}, 7, true},
  };
  return settings;
}

Module RedistributeModule(const Mesh& mesh, const Dims& dims, const Placement& from,
                          const Placement& to, Why why = Why::kTensor) {
  Module module{View::kGlobal, mesh, {Graph("g", Ops())}};
  Graph& graph = module.graphs[0];
  TypeId type = graph.types().Intern(Type::Tensor(DType::kF64, dims));
  ValueId in = graph.AddInput({}, type, "x", graph.placements().Intern(from));
  Attrs attrs;
  attrs.Set("why", why);
  ResultSpec result{type, "y", graph.placements().Intern(to)};
  NodeId node = graph.Append({.op = op::shard_redistribute,
                              .operands = {&in, 1},
                              .attrs = graph.InternAttrs(attrs),
                              .results = {&result, 1}});
  Output output;
  output.value = graph[node].first_result;
  graph.AddOutput(std::move(output));
  return module;
}

Result<Module> Lowered(Module module, std::string_view pipeline = "lower, localize") {
  // Writes no reproducers into the current directory.
  compile::ManagerOptions options;
  options.reproducer_dir = testing::TempDir();
  HEDDLE_TRY(
      compile::RunReport report,
      compile::RunPipeline(module, *compile::ParsePipeline(pipeline, compile::Passes()), options));
  return module;
}

std::vector<std::string> Collectives(const Module& module) {
  std::vector<std::string> names;
  const Graph& graph = module.graphs[0];
  for (NodeId id : graph.nodes()) {
    if (graph.op(id).effect() != Effect::kComm || graph[id].op == op::comm_wait) continue;
    const Axes& over = std::get<Axes>(*graph.attrs(id).Find("over"));
    names.push_back(fmt::format("{}[{}]", graph.op(id).name(), Format(module.mesh, over)));
  }
  return names;
}

// Returns the number of elements that the planned steps receive.
int64_t Moved(const Placement& from, const Placement& to, const Dims& dims, const Mesh& mesh) {
  int64_t moved = 0;
  int64_t have = LargestPart(from, dims, mesh);
  std::vector<compile::RedistributionStep> steps =
      *compile::PlanRedistribution(from, to, dims, mesh);
  for (const compile::RedistributionStep& step : steps) {
    int64_t next = LargestPart(step.to, dims, mesh);
    int64_t ranks = mesh.Size(step.over);
    int64_t held = have;
    int64_t sent = held - (held + ranks - 1) / ranks;
    have = next;
    if (!step.kind) continue;
    switch (*step.kind) {
      case CollectiveKind::kAllGather: moved += next - held; break;
      case CollectiveKind::kReduceScatter: moved += held - next; break;
      case CollectiveKind::kAllReduce: moved += 2 * sent; break;
      case CollectiveKind::kAllToAll: moved += sent; break;
      case CollectiveKind::kShift: moved += held; break;
    }
  }
  return moved;
}

bool NeedsNewSum(const Placement& from, const Placement& to) {
  return std::ranges::any_of(to.partials, [&](const Partial& partial) {
    return std::ranges::find(from.partials, partial) == from.partials.end();
  });
}

// Small whole numbers, whose sums are exact: the whole tensor, and its summand at each position
// along the axes of the sum.
class Numbers {
 public:
  Numbers(const Dims& dims, const Placement& placement, const Mesh& mesh) {
    Placement splits{placement.splits, {}};
    std::map<std::vector<int64_t>, at::Tensor> summands;
    int64_t count = 1;
    for (Dim size : dims) count *= size;
    for (int64_t rank = 0; rank < mesh.ranks(); ++rank) {
      std::vector<int64_t> place;
      for (const Partial& partial : placement.partials)
        place.push_back(mesh.Coordinate(rank, partial.axis));
      auto [at, added] = summands.try_emplace(place);
      if (added) {
        auto first = static_cast<int64_t>(100 * summands.size() * summands.size());
        at->second = at::arange(first, first + count, at::kDouble).view(dims);
        whole = whole.defined() ? at::add(whole, at->second) : at->second;
      }
      parts.push_back({run::ShardOf(at->second, splits, mesh, rank)});
    }
  }

  at::Tensor whole;
  std::vector<std::vector<at::Tensor>> parts;
};

// Checks that each rank has its shard, bit by bit, and that pending sums add up to it.
std::string CheckData(const Module& local, const Dims& dims, const Placement& from,
                      const Placement& to) {
  const Mesh& mesh = local.mesh;
  Result<run::RankProgram> program = run::RankProgram::Compile(local, local.graphs[0]);
  if (!program.ok()) return Format(program.diagnostics());
  Numbers numbers(dims, from, mesh);
  Result<std::vector<std::vector<at::Tensor>>> out = program->Run(numbers.parts);
  if (!out.ok()) return Format(out.diagnostics());
  std::vector<at::Tensor> parts;
  for (const auto& outputs : *out) parts.push_back(outputs[0]);
  Result<at::Tensor> whole = run::Assemble(parts, to, mesh, dims);
  if (!whole.ok()) return Format(whole.diagnostics());
  if (!run::SameBits(*whole, numbers.whole)) return "the whole differs";
  for (int64_t rank = 0; rank < mesh.ranks() && to.partials.empty(); ++rank) {
    if (!run::SameBits(parts[static_cast<size_t>(rank)],
                       run::ShardOf(numbers.whole, to, mesh, rank)))
      return fmt::format("the part of rank {} differs", rank);
  }
  return "";
}

class Redistribution : public testing::TestWithParam<Setting> {
 protected:
  // Shows the first failures.
  void Fail(const Placement& from, const Placement& to, const std::string& why) {
    size_t rank = GetParam().dims.size();
    Mesh mesh(GetParam().mesh);
    if (++failures_ <= 3)
      ADD_FAILURE() << FormatPlacement(from, rank, mesh) << " to "
                    << FormatPlacement(to, rank, mesh) << ": " << why;
  }
  void TearDown() override {
    if (failures_ > 3) ADD_FAILURE() << failures_ << " pairs in all";
  }

  void CheckPair(const Placement& from, const Placement& to,
                 const std::optional<Distance>& shortest, bool run) {
    const Setting& setting = GetParam();
    Result<Module> local = Lowered(RedistributeModule(Mesh(setting.mesh), setting.dims, from, to));
    if (NeedsNewSum(from, to)) {
      EXPECT_FALSE(shortest);
      // A replicated vector may become a pending sum: all ranks but the first replace it by zeros.
      if (setting.dims.size() == 1 && local.ok()) {
        std::string error = run ? CheckData(*local, setting.dims, from, to) : "";
        if (!error.empty()) Fail(from, to, error + "\n" + Print(*local));
        return;
      }
      if (local.ok() || local.diagnostics()[0].kind != Diag::kRedistribution)
        Fail(from, to, "nothing becomes partial");
      return;
    }
    if (!local.ok()) return Fail(from, to, Format(local.diagnostics()));
    std::vector<std::string> collectives = Collectives(*local);
    Distance found{static_cast<int>(collectives.size()),
                   Moved(from, to, setting.dims, Mesh(setting.mesh))};
    bool differs =
        setting.rounded ? found.collectives != shortest->collectives : found != *shortest;
    if (differs) {
      return Fail(from, to,
                  fmt::format("moves {} elements, but {} collectives and {} would do\n{}",
                              found.moved, shortest->collectives, shortest->moved, Print(*local)));
    }
    std::string error = run ? CheckData(*local, setting.dims, from, to) : "";
    if (!error.empty()) Fail(from, to, error + "\n" + Print(*local));
  }

  int failures_ = 0;
};

TEST_P(Redistribution, GivesTheRightDataByTheFewestCollectives) {
  at::set_num_threads(1);
  const Setting& setting = GetParam();
  Mesh mesh(setting.mesh);
  size_t rank = setting.dims.size();
  std::vector<Placement> placements = AllPlacements(rank, mesh);
  size_t pair = 0;
  for (size_t i = 0; i < placements.size(); ++i) {
    std::vector<std::optional<Distance>> shortest = Distances(placements, i, setting.dims, mesh);
    for (size_t j = 0; j < placements.size(); ++j)
      CheckPair(placements[i], placements[j], shortest[j], pair++ % setting.stride == 0);
  }
  std::cout << fmt::format("{} pairs of {} placements\n", pair, placements.size());
}

INSTANTIATE_TEST_SUITE_P(All, Redistribution, testing::ValuesIn(Settings()),
                         [](const auto& info) { return std::string(info.param.name); });

// Gradients of hybrid sharding: the user chooses the order of the two reductions.
TEST(GradientRedistribution, ReducesInTheOrderAskedFor) {
  at::set_num_threads(1);
  Mesh mesh({{"rep", 2}, {"dp", 2}});
  Dims dims{5, 3};
  Placement from{{}, {{0, ReduceOp::kSum}, {1, ReduceOp::kSum}}};
  Placement to{{Axes(1), Axes()}, {}};
  using Names = std::vector<std::string>;
  auto check = [&](std::string_view pipeline, const Names& expected) {
    Result<Module> local = Lowered(RedistributeModule(mesh, dims, from, to, Why::kGrad), pipeline);
    ASSERT_TRUE(local.ok()) << Format(local.diagnostics());
    EXPECT_EQ(Collectives(*local), expected);
    EXPECT_EQ(CheckData(*local, dims, from, to), "");
  };
  check("lower, localize", {"comm.reduce_scatter[dp]", "comm.all_reduce[rep]"});
  check("lower{reduce_first=true}, localize", {"comm.all_reduce[rep]", "comm.reduce_scatter[dp]"});

  auto kinds = [&](compile::ReduceOrder order) {
    std::vector<std::pair<std::optional<CollectiveKind>, Axes>> out;
    std::vector<compile::RedistributionStep> steps =
        *compile::PlanRedistribution(from, to, dims, mesh, order);
    for (const compile::RedistributionStep& step : steps) out.push_back({step.kind, step.over});
    return out;
  };
  using Kinds = std::vector<std::pair<std::optional<CollectiveKind>, Axes>>;
  EXPECT_EQ(
      kinds(compile::ReduceOrder::kScatterFirst),
      (Kinds{{CollectiveKind::kReduceScatter, Axes(1)}, {CollectiveKind::kAllReduce, Axes(0)}}));
  EXPECT_EQ(
      kinds(compile::ReduceOrder::kReduceFirst),
      (Kinds{{CollectiveKind::kAllReduce, Axes(0)}, {CollectiveKind::kReduceScatter, Axes(1)}}));
  // One all-reduce if no order is requested.
  EXPECT_EQ(kinds(compile::ReduceOrder::kFewest).size(), 2u);
  EXPECT_EQ(kinds(compile::ReduceOrder::kFewest)[1].first, std::nullopt);
}

// Splits of all axes that change their dimensions. There are more intermediate placements than the
// planner searches, so it reduces, gathers and splits. That takes more than four axes: eight
// dimensions have 11,265 placements on four.
struct LongWay {
  const char* name;
  size_t axes;
  size_t pending;
  Dims dims;
  // By axis: the dimension that it splits before (if nothing is pending over it) and after.
  std::vector<size_t> from;
  std::vector<size_t> to;
  bool gives_up = true;
};

void PrintTo(const LongWay& way, std::ostream* out) { *out << way.name; }

class LongRedistribution : public testing::TestWithParam<LongWay> {
 protected:
  LongRedistribution() {
    const LongWay& way = GetParam();
    std::vector<MeshAxis> axes;
    for (size_t a = 0; a < way.axes; ++a) axes.push_back({fmt::format("m{}", a), 2});
    mesh_ = Mesh(axes);
    from_.splits.resize(way.dims.size());
    to_.splits.resize(way.dims.size());
    for (AxisId a = 0; a < way.axes; ++a) {
      if (a < way.pending) {
        from_.partials.push_back({a, ReduceOp::kSum});
      } else {
        from_.splits[way.from[a]].Add(a);
      }
      to_.splits[way.to[a]].Add(a);
    }
    from_.Normalize();
    to_.Normalize();
  }

  Mesh mesh_;
  Placement from_;
  Placement to_;
};

TEST_P(LongRedistribution, GivesTheRightDataWhereTheSearchGivesUp) {
  at::set_num_threads(1);
  const Dims& dims = GetParam().dims;
  std::vector<compile::RedistributionStep> steps =
      *compile::PlanRedistribution(from_, to_, dims, mesh_);
  auto count = [&](std::optional<CollectiveKind> kind) {
    return static_cast<size_t>(std::ranges::count(steps, kind, &compile::RedistributionStep::kind));
  };
  if (GetParam().gives_up) {
    EXPECT_EQ(count(CollectiveKind::kAllReduce), GetParam().pending > 0 ? 1u : 0u);
    EXPECT_EQ(
        count(CollectiveKind::kAllReduce) + count(CollectiveKind::kAllGather) + count(std::nullopt),
        steps.size());
    EXPECT_GE(count(CollectiveKind::kAllGather), 4u);
  } else {
    EXPECT_EQ(count(CollectiveKind::kAllToAll), steps.size());
  }
  Result<Module> local = Lowered(RedistributeModule(mesh_, dims, from_, to_));
  ASSERT_TRUE(local.ok()) << Format(local.diagnostics());
  EXPECT_EQ(CheckData(*local, dims, from_, to_), "") << Print(*local);
}

INSTANTIATE_TEST_SUITE_P(
    All, LongRedistribution,
    testing::Values(
        LongWay{"4_finds_its_way", 4, 0, Dims(8, 2), {0, 1, 2, 3}, {4, 5, 6, 7}, false},
        LongWay{"5_even", 5, 0, Dims(10, 2), {0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}},
        LongWay{"5_uneven", 5, 0, {3, 1, 2, 3, 1, 3, 2, 1, 3, 2}, {0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}},
        LongWay{
            "5_pending", 5, 1, {2, 3, 2, 1, 2, 3, 2, 1, 3, 2}, {0, 1, 2, 3, 4}, {5, 6, 7, 8, 9}},
        LongWay{"6_on_six_dims", 6, 0, {2, 3, 2, 2, 3, 2}, {0, 1, 2, 3, 4, 5}, {5, 4, 3, 2, 1, 0}},
        // Both placements share the outermost axis of dimension 0, which no step changes.
        LongWay{"6_with_a_common_axis",
                6,
                0,
                {5, 2, 2, 3, 2, 2, 2, 3, 2, 2},
                {0, 0, 1, 2, 3, 4},
                {0, 5, 6, 7, 8, 9}}),
    [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace heddle
