// A checkpoint of one mesh is read on another.
#include <gtest/gtest.h>

#include <random>

#include "heddle/core/base/file.h"
#include "test/checkpoint/state.h"

namespace heddle {
namespace {

struct NamedMesh {
  const char* name;
  Mesh mesh;
  // The splits of rows and columns of a matrix, and of a vector.
  std::vector<std::string> matrix;
  std::vector<std::string> vector;
};

std::vector<NamedMesh> Meshes() {
  return {{"dp4", Mesh({{"dp", 4}}), {"dp", ""}, {"dp"}},
          {"dp2tp2", Mesh({{"dp", 2}, {"tp", 2}}), {"tp,dp", ""}, {"dp"}},
          {"dp2tp2 by columns", Mesh({{"dp", 2}, {"tp", 2}}), {"dp", "tp"}, {""}},
          {"tp4", Mesh({{"tp", 4}}), {"", "tp"}, {""}},
          {"hsdp2x2", Mesh({{"replicate", 2}, {"shard", 2}}), {"shard", ""}, {"shard"}},
          {"one", Mesh(), {}, {}}};
}

State StateOn(const NamedMesh& on) {
  State state{on.mesh, {}};
  for (run::Sizes shape :
       {run::Sizes{8, 8}, run::Sizes{7, 5}, run::Sizes{3, 9}, run::Sizes{1, 2}, run::Sizes{5, 0}})
    state.tensors.push_back(MakeTensor(on.mesh, "w" + run::FormatSizes(shape), shape, on.matrix));
  for (run::Sizes shape : {run::Sizes{8}, run::Sizes{5}, run::Sizes{1}})
    state.tensors.push_back(
        MakeTensor(on.mesh, "b" + run::FormatSizes(shape), shape, on.vector, DType::kBF16));
  Fill(state, 5);
  return state;
}

void Save(const State& state, const std::string& folder) {
  auto writer = *run::CheckpointWriter::Open(
      {.folder = folder, .world = state.mesh.ranks(), .ranks = AllRanks(state.mesh), .run = ""});
  ASSERT_TRUE(writer->Save(SnapshotOf(state, 1, AllRanks(state.mesh))).ok());
  Status saved = writer->Finish();
  ASSERT_TRUE(saved.ok()) << Format(saved.diagnostics());
}

TEST(CheckpointMeshTest, EveryPairOfMeshes) {
  for (const NamedMesh& from : Meshes()) {
    TempDir folder;
    Save(StateOn(from), folder.path());
    run::Checkpoint checkpoint = **run::OpenCheckpoint(folder.path());
    for (const NamedMesh& to : Meshes())
      EXPECT_EQ(Differences(StateOn(to), checkpoint), "") << from.name << " to " << to.name;
  }
}

// Returns a placement of a tensor with `dims` dimensions on random axes.
Placement RandomPlacement(const Mesh& mesh, size_t dims, std::mt19937& dice) {
  Placement placement;
  placement.splits.resize(dims);
  std::vector<AxisId> axes(mesh.axes().size());
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<AxisId>(i);
  std::shuffle(axes.begin(), axes.end(), dice);
  for (AxisId axis : axes) {
    size_t dim = dice() % (dims + 1);
    if (dim < dims) placement.splits[dim].Add(axis);
  }
  placement.Normalize();
  return placement;
}

TEST(CheckpointMeshTest, RandomPlacements) {
  std::mt19937 dice(11);
  constexpr DType kTypes[] = {DType::kF64, DType::kF32, DType::kBF16, DType::kBool};
  auto random_mesh = [&] {
    std::vector<MeshAxis> axes;
    for (const char* name : {"a", "b", "c"}) {
      if (dice() % 3 > 0) axes.push_back({name, static_cast<int64_t>(1 + dice() % 3)});
    }
    return Mesh(axes);
  };
  for (int trial = 0; trial < 60; ++trial) {
    State state{random_mesh(), {}};
    for (int t = 0; t < 6; ++t) {
      StateTensor& tensor = state.tensors.emplace_back();
      tensor.info = {fmt::format("t{}", t), kTypes[dice() % 4], {}};
      for (size_t dims = dice() % 5; dims > 0; --dims)
        tensor.info.shape.push_back(static_cast<int64_t>(dice() % 8));
      tensor.placement = RandomPlacement(state.mesh, tensor.info.shape.size(), dice);
    }
    Fill(state, dice());
    TempDir folder;
    Save(state, folder.path());
    run::Checkpoint checkpoint = **run::OpenCheckpoint(folder.path());
    for (int reads = 0; reads < 3; ++reads) {
      EXPECT_EQ(Differences(state, checkpoint), "") << "trial " << trial;
      state.mesh = random_mesh();
      for (StateTensor& tensor : state.tensors)
        tensor.placement = RandomPlacement(state.mesh, tensor.info.shape.size(), dice);
    }
  }
}

// Reads runs directly, runs in windows, and runs with wide gaps.
TEST(CheckpointMeshTest, LargeTensors) {
  State state{Mesh({{"dp", 2}, {"tp", 2}}), {}};
  state.tensors = {MakeTensor(state.mesh, "long rows", {9, 50001}, {"dp", "tp"}),
                   MakeTensor(state.mesh, "short rows", {70001, 7}, {"tp", "dp"}),
                   MakeTensor(state.mesh, "wide gaps", {5, 3, 30000}, {"", "", "dp,tp"})};
  Fill(state, 3);
  TempDir folder;
  Save(state, folder.path());
  run::Checkpoint checkpoint = **run::OpenCheckpoint(folder.path());
  for (const StateTensor& tensor : state.tensors) {
    run::Slice slice = run::WholeSlice(tensor.info.shape);
    for (size_t d = 0; d < slice.shape.size(); ++d) {
      slice.offset[d] = 1;
      slice.shape[d] -= 2;
    }
    std::string found(static_cast<size_t>(run::BytesOf(tensor.info.dtype, slice.shape)), '#');
    ASSERT_TRUE(checkpoint.Read(tensor.info.name, slice, found.data()).ok());
    EXPECT_TRUE(found == Cut(tensor.info, tensor.bytes, slice)) << tensor.info.name;
    // A thin column: gaps of whole rows.
    run::Slice thin = run::WholeSlice(tensor.info.shape);
    thin.offset.back() = thin.shape.back() / 2;
    thin.shape.back() = 1;
    found.assign(static_cast<size_t>(run::BytesOf(tensor.info.dtype, thin.shape)), '#');
    ASSERT_TRUE(checkpoint.Read(tensor.info.name, thin, found.data()).ok());
    EXPECT_TRUE(found == Cut(tensor.info, tensor.bytes, thin)) << tensor.info.name;
  }
}

}  // namespace
}  // namespace heddle
