// Arrangement: how many ranks do what, and in how many pieces the batch of a step comes.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/compile/plan/presets/presets.h"
#include "heddle/core/ir/mesh.h"

namespace heddle::search {

struct Arrangement {
  // Copies of the model; ranks that keep parts of it; ranks that share heads and hidden units.
  int64_t replicate = 1;
  int64_t shard = 1;
  int64_t tensor = 1;
  // Of those that shard or are tensor-parallel: how many share the experts of a mixture.
  int64_t experts = 1;
  // Forward and backward run so many times before the optimizer does.
  int64_t micro_batches = 1;

  int64_t batch_ranks() const { return replicate * shard; }
  auto operator<=>(const Arrangement&) const = default;
};

// Axes of one rank are left out; one rank alone is `dp`.
Mesh MeshOf(const Arrangement& arrangement);
compile::PresetOptions PresetOf(const Arrangement& arrangement);
// `dp 64`, `dp_replicate 2, dp 4, tp 8, 2 micro-batches`
std::string Format(const Arrangement& arrangement);

// What arrangements there may be of.
struct ArrangementSpace {
  int64_t devices = 1;
  int64_t global_batch = 1;
  // Tensor parallelism stays within a node.
  int64_t node_devices = 1;
  // Of a mixture; 0 for none.
  int64_t experts = 0;
  // Every step is one pass over the batch.
  bool one_pass = false;
  // For which degrees the model has tensor parallelism.
  std::function<bool(int64_t)> may_split;
};

// Every arrangement in which all ranks have the same number of sequences and of experts. Each of several copies of the model fills
// whole nodes, or they share nodes evenly. Of one mesh at most 16 numbers of micro-batches: those with the fewest sequences in each.
std::vector<Arrangement> Arrangements(const ArrangementSpace& space);

}  // namespace heddle::search
