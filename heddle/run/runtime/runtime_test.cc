// Compares runs of local graphs on small meshes with results computed from the whole tensors.
#include <algorithm>

#include <gtest/gtest.h>

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/bincount.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/zeros.h>

#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/run/runtime/local_backend.h"
#include "heddle/run/runtime/rank_program.h"
#include "heddle/run/runtime/recorder.h"

namespace heddle::run {
namespace {

Module Read(const std::string& text) {
  Result<Module> module = ParseModule(text, "test", Ops());
  EXPECT_TRUE(module.ok()) << text << Format(module.diagnostics());
  return module.ok() ? *module : Module();
}

std::vector<Tensors> RunText(const std::string& text, const std::vector<Tensors>& inputs) {
  Module module = Read(text);
  Result<std::vector<Tensors>> outputs =
      RankProgram::Compile(module, module.graphs[0])->Run(inputs);
  EXPECT_TRUE(outputs.ok()) << text << Format(outputs.diagnostics());
  return outputs.ok() ? *outputs : std::vector<Tensors>(inputs.size(), Tensors(8));
}

// Returns different numbers for every seed, exact in f32.
at::Tensor Numbers(at::IntArrayRef sizes, int64_t seed) {
  int64_t count = 1;
  for (int64_t size : sizes) count *= size;
  return (at::arange(count, at::kFloat) * 7 % 31 + 100 * seed).view(sizes);
}

// A mesh, and the axes of a collective.
struct Case {
  std::vector<int64_t> mesh;
  std::vector<AxisId> over;
};

std::string NameOf(const testing::TestParamInfo<Case>& info) {
  std::string name = "mesh";
  for (int64_t size : info.param.mesh) name += std::to_string(size);
  name += "_over";
  for (AxisId axis : info.param.over) name += std::to_string(axis);
  return name;
}

class CollectiveTest : public testing::TestWithParam<Case> {
 protected:
  CollectiveTest() {
    std::vector<MeshAxis> axes;
    for (size_t i = 0; i < GetParam().mesh.size(); ++i)
      axes.push_back({i == 0 ? "dp" : "tp", GetParam().mesh[i]});
    mesh_ = Mesh(std::move(axes));
    for (AxisId axis : GetParam().over) over_.Add(axis);
  }

  int64_t ranks() const { return mesh_.ranks(); }
  std::vector<int64_t> At(int64_t rank) const {
    if (mesh_.axes().size() == 1) return {rank};
    return {rank / mesh_[1].size, rank % mesh_[1].size};
  }
  // Returns the positions of `whole` elements that a rank stores, split over the axes of the case
  // in turn.
  at::Tensor PositionsOf(int64_t whole, int64_t rank) const {
    std::vector<int64_t> kept(static_cast<size_t>(whole));
    for (int64_t i = 0; i < whole; ++i) kept[static_cast<size_t>(i)] = i;
    for (AxisId axis : over_) {
      int64_t n = mesh_[axis].size;
      int64_t chunk = (static_cast<int64_t>(kept.size()) + n - 1) / n;
      std::vector<int64_t> next;
      for (int64_t i = 0; i < chunk; ++i) {
        int64_t at = this->At(rank)[axis] * chunk + i;
        if (at < static_cast<int64_t>(kept.size())) next.push_back(kept[static_cast<size_t>(at)]);
      }
      kept = next;
    }
    return at::tensor(kept, at::kLong);
  }
  at::Tensor PartOf(const at::Tensor& whole, int64_t dim, int64_t rank) const {
    return whole.index_select(dim, PositionsOf(whole.size(dim), rank));
  }
  // Returns the ranks of one group, by their coordinates along `over`.
  std::vector<int64_t> GroupOf(int64_t rank) const {
    std::vector<std::pair<std::vector<int64_t>, int64_t>> members;
    for (int64_t other = 0; other < ranks(); ++other) {
      bool together = true;
      for (AxisId axis = 0; axis < mesh_.axes().size(); ++axis)
        together &= over_.contains(axis) || At(rank)[axis] == At(other)[axis];
      if (!together) continue;
      std::vector<int64_t> key;
      for (AxisId axis : over_) key.push_back(At(other)[axis]);
      members.emplace_back(key, other);
    }
    std::ranges::sort(members);
    std::vector<int64_t> group;
    for (const auto& [key, member] : members) group.push_back(member);
    return group;
  }
  // Returns a number that the ranks of a group share.
  int64_t GroupSeed(int64_t rank) const { return GroupOf(rank)[0]; }

  std::string Dim(int64_t whole) const {
    SymbolTable symbols;
    std::string out;
    AppendDim(out, symbols.Chunk(whole, over_, mesh_), mesh_, symbols);
    return out;
  }
  // Fills in the text of a graph: {mesh}, {over}, and {5} for this rank's part of 5.
  std::string Text(std::string body) const {
    auto replace = [&](const std::string& from, const std::string& to) {
      for (size_t at = body.find(from); at != std::string::npos; at = body.find(from, at + 1))
        body.replace(at, from.size(), to);
    };
    replace("{over}", Format(mesh_, over_));
    for (int64_t whole = 0; whole < 30; ++whole) replace(fmt::format("{{{}}}", whole), Dim(whole));
    return fmt::format("heddle 1 local\nmesh [{}]\ngraph @g{}", Format(mesh_), body);
  }

  Mesh mesh_;
  Axes over_;
};

// Sizes that split evenly, unevenly, or into empty parts on some mesh.
constexpr int64_t kSizes[] = {12, 7, 5, 2, 1, 0};

TEST_P(CollectiveTest, AllGather) {
  for (int64_t whole : kSizes) {
    std::string text = Text(fmt::format(
        "(%x: f32[{{{0}}},3], %y: i64[{{{0}}}], %z: f32[2,{{{0}}}]) -> (%a, %b, %c) {{\n"
        "  %g! = comm.all_gather(%x, %y, over=[{{over}}], why=unshard)\n"
        "  %a, %b = comm.wait(%g!)\n"
        "  %h! = comm.all_gather(%z, over=[{{over}}], dim=-1, why=unshard)\n"
        "  %c = comm.wait(%h!)\n}}\n",
        whole));
    std::vector<Tensors> inputs, expected;
    for (int64_t rank = 0; rank < ranks(); ++rank) {
      at::Tensor x = Numbers({whole, 3}, GroupSeed(rank));
      at::Tensor y = Numbers({whole}, GroupSeed(rank) + 1).to(at::kLong);
      // A transposed part must give the same result as the others.
      at::Tensor z = Numbers({whole, 2}, GroupSeed(rank)).t();
      expected.push_back({x, y, z});
      inputs.push_back({PartOf(x, 0, rank), PartOf(y, 0, rank), PartOf(z.t(), 0, rank).t()});
    }
    std::vector<Tensors> outputs = RunText(text, inputs);
    for (size_t r = 0; r < inputs.size(); ++r) {
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_TRUE(outputs[r][i].equal(expected[r][i])) << text << "rank " << r << " output " << i;
        EXPECT_TRUE(outputs[r][i].is_contiguous());
      }
    }
  }
}

TEST_P(CollectiveTest, ReduceScatter) {
  for (int64_t whole : kSizes) {
    std::string text = Text(fmt::format(
        "(%x: f32[{0},3], %y: f32[2,{0}]) -> (%a, %b, %c) {{\n"
        "  %g! = comm.reduce_scatter(%x, over=[{{over}}], scale=0.5, why=grad)\n"
        "  %a = comm.wait(%g!)\n"
        "  %h! = comm.reduce_scatter(%y, %y, over=[{{over}}], dim=1, op=max, why=grad)\n"
        "  %b, %c = comm.wait(%h!)\n}}\n",
        whole));
    std::vector<Tensors> inputs;
    for (int64_t rank = 0; rank < ranks(); ++rank)
      inputs.push_back({Numbers({whole, 3}, rank), Numbers({2, whole}, (rank * 5) % 7)});
    std::vector<Tensors> outputs = RunText(text, inputs);
    for (int64_t rank = 0; rank < ranks(); ++rank) {
      Tensors x, y;
      for (int64_t member : GroupOf(rank)) {
        x.push_back(inputs[static_cast<size_t>(member)][0]);
        y.push_back(inputs[static_cast<size_t>(member)][1]);
      }
      const Tensors& got = outputs[static_cast<size_t>(rank)];
      EXPECT_TRUE(got[0].equal(PartOf(at::stack(x).sum(0) * 0.5, 0, rank))) << text << rank;
      at::Tensor most = PartOf(at::stack(y).amax(0), 1, rank);
      EXPECT_TRUE(got[1].equal(most)) << text << rank;
      EXPECT_TRUE(got[2].equal(most)) << text << rank;
    }
  }
}

TEST_P(CollectiveTest, AllReduce) {
  std::string text = Text(
      "(%x: f32[3]) -> (%a, %b, %c, %d, %e, %f) {\n"
      "  %g! = comm.all_reduce(%x, %x, over=[{over}], why=norm)\n"
      "  %a, %f = comm.wait(%g!)\n"
      "  %h! = comm.all_reduce(%x, over=[{over}], op=avg, scale=2.0, why=loss)\n"
      "  %b = comm.wait(%h!)\n"
      "  %i! = comm.all_reduce(%x, over=[{over}], op=max, why=norm)\n"
      "  %c = comm.wait(%i!)\n"
      "  %j! = comm.all_reduce(%x, over=[{over}], op=min, why=norm)\n"
      "  %d = comm.wait(%j!)\n"
      "  %k! = comm.all_reduce(%x, over=[{over}], op=product, why=norm)\n"
      "  %e = comm.wait(%k!)\n}\n");
  std::vector<Tensors> inputs;
  for (int64_t rank = 0; rank < ranks(); ++rank)
    inputs.push_back({Numbers({3}, 0) % 5 + (rank * 2) % 5});
  std::vector<Tensors> outputs = RunText(text, inputs);
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    Tensors parts;
    for (int64_t member : GroupOf(rank)) parts.push_back(inputs[static_cast<size_t>(member)][0]);
    at::Tensor all = at::stack(parts);
    at::Tensor sum = all.sum(0);
    const Tensors& got = outputs[static_cast<size_t>(rank)];
    Tensors expected{sum, sum * 2 / all.size(0), all.amax(0), all.amin(0), all.prod(0), sum};
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(got[i].equal(expected[i])) << "rank " << rank << " output " << i;
  }
}

TEST_P(CollectiveTest, AllToAllMovesASplit) {
  for (int64_t rows : kSizes) {
    for (int64_t columns : {12, 5}) {
      std::string text = Text(fmt::format(
          "(%x: f32[{0},{{{1}}}]) -> (%a, %b) {{\n"
          "  %g! = comm.all_to_all(%x, %x, over=[{{over}}], split_dim=0, concat_dim=-1, "
          "why=tensor)\n"
          "  %a, %b = comm.wait(%g!)\n}}\n",
          rows, columns));
      std::vector<Tensors> inputs, expected;
      for (int64_t rank = 0; rank < ranks(); ++rank) {
        at::Tensor x = Numbers({rows, columns}, GroupSeed(rank));
        inputs.push_back({PartOf(x, 1, rank)});
        expected.push_back({PartOf(x, 0, rank)});
      }
      std::vector<Tensors> outputs = RunText(text, inputs);
      for (size_t r = 0; r < inputs.size(); ++r) {
        EXPECT_TRUE(outputs[r][0].equal(expected[r][0])) << text << "rank " << r;
        EXPECT_TRUE(outputs[r][1].equal(expected[r][0])) << text << "rank " << r;
      }
    }
  }
}

TEST_P(CollectiveTest, ShiftMovesTensorsToTheNextRank) {
  std::string text = Text(
      "(%x: f32[3,2], %n: i64[2]) -> (%a, %b) {\n"
      "  %s! = comm.shift(%x, %n, over=[{over}], why=context)\n"
      "  %a, %b = comm.wait(%s!)\n}\n");
  std::vector<Tensors> inputs;
  for (int64_t rank = 0; rank < ranks(); ++rank)
    inputs.push_back({Numbers({3, 2}, rank), Numbers({2}, 7 * rank).to(at::kLong)});
  std::vector<Tensors> outputs = RunText(text, inputs);
  for (int64_t rank = 0; rank < ranks(); ++rank) {
    std::vector<int64_t> members = GroupOf(rank);
    size_t place = static_cast<size_t>(std::ranges::find(members, rank) - members.begin());
    auto from = static_cast<size_t>(members[(place + members.size() - 1) % members.size()]);
    for (size_t i = 0; i < 2; ++i)
      EXPECT_TRUE(outputs[static_cast<size_t>(rank)][i].equal(inputs[from][i])) << rank;
  }
}

// Rows in unequal and empty parts: distributed evenly, all to one expert, or randomly.
TEST_P(CollectiveTest, RowsGoToTheirExpertsAndComeBack) {
  int64_t group = static_cast<int64_t>(GroupOf(0).size());
  int64_t experts = 2 * group;
  constexpr int64_t kRows = 6;
  for (int64_t kind : {0, 1, 2}) {
    auto expert_of = [&](int64_t rank, int64_t row) {
      if (kind == 0) return row % experts;
      if (kind == 1) return experts - 1;
      return (rank * rank + row * row * 3) % experts;
    };
    std::vector<Tensors> inputs;
    for (int64_t rank = 0; rank < ranks(); ++rank) {
      std::vector<int64_t> counts(static_cast<size_t>(experts));
      for (int64_t row = 0; row < kRows; ++row) ++counts[static_cast<size_t>(expert_of(rank, row))];
      inputs.push_back({Numbers({kRows, 3}, rank + 1), at::tensor(counts)});
    }
    for (bool exact : {true, false}) {
      std::string text = Text(fmt::format(
          "(%x: f32[{0},3], %n: i64[{1}]) -> (%d, %b) {{\n"
          "  %r! = comm.all_to_all(%n, over=[{{over}}], split_dim=0, concat_dim=0, why=expert)\n"
          "  %r = comm.wait(%r!)\n"
          "  %d! = comm.dispatch(%x, %n, %r, over=[{{over}}], most={2}{3}, why=expert)\n"
          "  %d = comm.wait(%d!)\n"
          "  %b! = comm.combine(%d, %n, %r, over=[{{over}}], rows_back={0}, why=expert)\n"
          "  %b = comm.wait(%b!)\n}}\n",
          kRows, experts, kRows * group, exact ? ", size=\"rows0\"" : ""));
      std::vector<Tensors> outputs = RunText(text, inputs);
      for (int64_t rank = 0; rank < ranks(); ++rank) {
        // Sorted by expert, then by member, then in their original order.
        std::vector<int64_t> members = GroupOf(rank);
        int64_t place = std::ranges::find(members, rank) - members.begin();
        Tensors expected;
        for (int64_t expert = 2 * place; expert < 2 * place + 2; ++expert) {
          for (int64_t member : members) {
            const Tensors& theirs = inputs[static_cast<size_t>(member)];
            int64_t begin = theirs[1].narrow(0, 0, expert).sum().item<int64_t>();
            expected.push_back(theirs[0].narrow(0, begin, theirs[1][expert].item<int64_t>()));
          }
        }
        at::Tensor rows = at::cat(expected);
        const Tensors& got = outputs[static_cast<size_t>(rank)];
        EXPECT_EQ(got[0].size(0), exact ? rows.size(0) : kRows * group);
        EXPECT_TRUE(got[0].narrow(0, 0, rows.size(0)).equal(rows)) << text << rank;
        EXPECT_EQ(
            got[0].narrow(0, rows.size(0), got[0].size(0) - rows.size(0)).abs().sum().item<float>(),
            0);
        EXPECT_TRUE(got[1].equal(inputs[static_cast<size_t>(rank)][0])) << text << rank;
      }
    }
  }
}

TEST(CountNumbers, IsBincount) {
  at::Tensor numbers = at::tensor({3, 0, 3, 7, 3, 0}, at::kLong);
  EXPECT_TRUE(CountNumbers(numbers, 8).equal(at::bincount(numbers, {}, 8)));
  EXPECT_TRUE(CountNumbers(numbers.slice(0, 0, 0), 4).equal(at::zeros({4}, at::kLong)));
}

TEST(RecordingObstacle, NamesAttentionToDocuments) {
  auto obstacle = [](std::string_view attention) {
    Module module =
        Read(fmt::format("heddle 1 local\nmesh [cp=1]\ngraph @g(%q: f32[1,2,4,8], %k: "
                         "f32[1,2,4,8], %p: i64[1,4]) -> "
                         "(%o) {{\n  %o, %l = {}\n}}\n",
                         attention));
    return RecordingObstacle(*RankProgram::Compile(module, module.graphs[0])).value_or("");
  };
  EXPECT_EQ(obstacle("shard.attention(%q, %k, %k, over=[cp])"), "");
  for (std::string_view attention : {"heddle.document_attention(%q, %k, %k, %p)",
                                     "shard.attention(%q, %k, %k, positions=%p, over=[cp])"})
    EXPECT_TRUE(obstacle(attention).starts_with("node 0: its documents have other lengths"))
        << obstacle(attention);
}

TEST(Dispatch, FailsWhereMoreRowsComeThanARankTakes) {
  Module module = Read(
      "heddle 1 local\nmesh [dp=2]\ngraph @g(%x: f32[4,3], %n: i64[4]) -> (%d) {\n"
      "  %r! = comm.all_to_all(%n, over=[dp], split_dim=0, concat_dim=0, why=expert) "
      "@layers.3.moe\n"
      "  %r = comm.wait(%r!) @layers.3.moe\n"
      "  %d! = comm.dispatch(%x, %n, %r, over=[dp], most=5, size=\"rows0\", why=expert) "
      "@layers.3.moe\n"
      "  %d = comm.wait(%d!) @layers.3.moe\n}\n");
  at::Tensor counts = at::tensor(std::vector<int64_t>{0, 0, 1, 3});
  std::vector<Tensors> inputs(2, Tensors{Numbers({4, 3}, 1), counts});
  auto outputs = RankProgram::Compile(module, module.graphs[0])->Run(inputs);
  ASSERT_FALSE(outputs.ok());
  std::string message = Format(outputs.diagnostics());
  for (const char* part :
       {"8 rows come for experts 2 to 3", "at most 5", "6 of them for expert 3", "@layers.3.moe"})
    EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST_P(CollectiveTest, SliceAndBounds) {
  for (int64_t whole : kSizes) {
    std::string text =
        Text(fmt::format("(%x: f32[2,{0}]) -> (%s, %b, %e) {{\n"
                         "  %s = shard.slice(%x, over=[{{over}}], dim=1)\n"
                         "  %b = shard.bound(size={0}, over=[{{over}}])\n"
                         "  %e = shard.bound(size={0}, over=[{{over}}], end=true)\n}}\n",
                         whole));
    at::Tensor x = Numbers({2, whole}, 1);
    std::vector<Tensors> outputs = RunText(text, std::vector<Tensors>(mesh_.ranks(), Tensors{x}));
    for (int64_t rank = 0; rank < ranks(); ++rank) {
      const Tensors& got = outputs[static_cast<size_t>(rank)];
      EXPECT_TRUE(got[0].equal(PartOf(x, 1, rank))) << text << "rank " << rank;
      auto begin = got[1].item<int64_t>();
      auto end = got[2].item<int64_t>();
      EXPECT_EQ(got[1].scalar_type(), at::kLong);
      EXPECT_TRUE(at::arange(begin, end).equal(PositionsOf(whole, rank))) << text << rank;
    }
  }
}

TEST_P(CollectiveTest, SizesAmongAttributesAreThoseOfTheRank) {
  for (int64_t whole : kSizes) {
    std::string text =
        Text(fmt::format("(%x: f32[{{{0}}},4]) -> (%y) {{\n"
                         "  %v = aten.view(%x, size=[{{{0}}},2,2])\n"
                         "  %o = aten.full(size=[{{{0}}},2,2], fill_value=3.0, dtype=f32)\n"
                         "  %y = aten.add.Tensor(%v, %o)\n}}\n",
                         whole));
    std::vector<Tensors> inputs;
    at::Tensor x = Numbers({whole, 4}, 1);
    for (int64_t rank = 0; rank < ranks(); ++rank) inputs.push_back({PartOf(x, 0, rank)});
    std::vector<Tensors> outputs = RunText(text, inputs);
    for (size_t r = 0; r < inputs.size(); ++r)
      EXPECT_TRUE(outputs[r][0].equal(inputs[r][0].view({-1, 2, 2}) + 3)) << text << "rank " << r;
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, CollectiveTest,
                         testing::Values(Case{{2}, {0}}, Case{{4}, {0}}, Case{{1}, {0}},
                                         Case{{2, 2}, {0}}, Case{{2, 2}, {1}}, Case{{2, 2}, {0, 1}},
                                         Case{{2, 2}, {1, 0}}, Case{{2, 3}, {0}}, Case{{2, 3}, {1}},
                                         Case{{2, 3}, {0, 1}}, Case{{2, 3}, {1, 0}}),
                         NameOf);

}  // namespace
}  // namespace heddle::run
