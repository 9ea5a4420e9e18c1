// The state of a run that is only numbers: tensors on a mesh, and a step that changes them.
#pragma once

#include <string>
#include <vector>

#include "heddle/run/checkpoint/checkpoint.h"
#include "heddle/run/checkpoint/writer.h"

namespace heddle {

// A whole tensor and how it lies on the mesh.
struct StateTensor {
  run::TensorInfo info;
  Placement placement;
  std::string bytes;
};

struct State {
  Mesh mesh;
  std::vector<StateTensor> tensors;
};

// Sets every byte from its place, the tensor and a seed.
void Fill(State& state, uint64_t seed);

// The bytes of a slice of a whole tensor.
std::string Cut(const run::TensorInfo& info, const std::string& whole, const run::Slice& slice);

// What these ranks hold of the state. The pieces read from it when they are copied.
run::Snapshot SnapshotOf(const State& state, int64_t step, const std::vector<int64_t>& ranks);
// All ranks of the mesh.
std::vector<int64_t> AllRanks(const Mesh& mesh);

// Reads what every rank of the mesh holds, and holds it against the state: the first that differs, or what reading says.
std::string Differences(const State& state, const run::Checkpoint& checkpoint);

// A tensor of f32 with this shape; `axes` names the axes that split each dimension: `{"dp", "tp"}`, `{"dp,tp", ""}`.
StateTensor MakeTensor(const Mesh& mesh, const std::string& name, const run::Sizes& shape,
                       const std::vector<std::string>& axes, DType dtype = DType::kF32);

}  // namespace heddle
