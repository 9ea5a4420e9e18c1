// The state of a run for tests: tensors on a mesh.
#pragma once

#include <string>
#include <vector>

#include "heddle/run/checkpoint/checkpoint.h"
#include "heddle/run/checkpoint/writer.h"

namespace heddle {

// A whole tensor and its placement on the mesh.
struct StateTensor {
  run::TensorInfo info;
  Placement placement;
  std::string bytes;
};

struct State {
  Mesh mesh;
  std::vector<StateTensor> tensors;
};

// Sets every byte from its position, the tensor and a seed.
void Fill(State& state, uint64_t seed);

// Returns the bytes of a slice of a whole tensor.
std::string Cut(const run::TensorInfo& info, const std::string& whole, const run::Slice& slice);

// Returns a snapshot of the state on these ranks. Its pieces refer to the state.
run::Snapshot SnapshotOf(const State& state, int64_t step, const std::vector<int64_t>& ranks);
// Returns all ranks of the mesh.
std::vector<int64_t> AllRanks(const Mesh& mesh);

// Reads the tensors of every rank of the mesh and compares them with the state. Returns the first
// difference or read error; empty if there is none.
std::string Differences(const State& state, const run::Checkpoint& checkpoint);

// Makes a tensor of this shape. `axes` contains the axes that split each dimension: `{"dp", "tp"}`,
// `{"dp,tp", ""}`.
StateTensor MakeTensor(const Mesh& mesh, const std::string& name, const run::Sizes& shape,
                       const std::vector<std::string>& axes, DType dtype = DType::kF32);

}  // namespace heddle
