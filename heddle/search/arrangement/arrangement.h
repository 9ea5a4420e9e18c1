// Arrangement: the degrees of parallelism, and the number of micro-batches of a step.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "heddle/compile/plan/presets/presets.h"
#include "heddle/core/ir/mesh.h"

namespace heddle::search {

struct Arrangement {
  // Data-parallel replicas, ranks that shard parameters, and tensor-parallel ranks.
  int64_t replicate = 1;
  int64_t shard = 1;
  int64_t tensor = 1;
  // Ranks that share the positions of every sequence, and also shard parameters. They exchange
  // positions for heads, or gather keys and values with positions in head-tail order.
  int64_t context = 1;
  bool context_heads = false;
  // Among the shard, context and tensor ranks: the number that share the experts of a mixture.
  int64_t experts = 1;
  // Forward and backward passes per optimizer step.
  int64_t micro_batches = 1;
  // Coordinates of a pipeline, which has the micro-batches above. The other degrees are those of
  // one coordinate.
  int64_t pipeline = 1;

  int64_t batch_ranks() const { return replicate * shard; }
  int64_t coordinate_ranks() const { return batch_ranks() * context * tensor; }
  bool shards_params() const { return shard * context > 1; }
  auto operator<=>(const Arrangement&) const = default;
};

// Leaves out axes of size one; a single rank is `dp`.
Mesh MeshOf(const Arrangement& arrangement);
compile::PresetOptions PresetOf(const Arrangement& arrangement);
// `allgather` or `ulysses`.
std::string_view MethodOf(const Arrangement& arrangement);
// Formats as `dp 64` or `pp 2, dp_replicate 2, dp 4, cp 2 allgather, tp 8, 2 micro-batches`.
std::string Format(const Arrangement& arrangement, bool with_method = true);

// The limits of the arrangements of a search.
struct ArrangementSpace {
  int64_t devices = 1;
  int64_t global_batch = 1;
  // Tensor parallelism stays within a node.
  int64_t node_devices = 1;
  // Number of experts of a mixture; 0: none.
  int64_t experts = 0;
  // Whether every step is one pass over the batch, without micro-batches.
  bool one_pass = false;
  // Whether the model supports the degrees of tensor and context parallelism.
  std::function<bool(const Arrangement&)> supports;
};

// Returns every arrangement in which all ranks have equally many sequences and experts. The ranks
// of a replica, and those of a sequence, fill whole nodes, or share nodes evenly. Per mesh, at most
// 16 numbers of micro-batches: those with the fewest sequences per micro-batch. With context
// parallelism, a rank has one sequence per micro-batch.
std::vector<Arrangement> Arrangements(const ArrangementSpace& space);

// Returns the arrangements above with pipelines of 2 to `most_ranks` coordinates, which fill whole
// nodes or share nodes evenly. They have one replica, no context parallelism, and at least two
// micro-batches.
std::vector<Arrangement> PipelineArrangements(const ArrangementSpace& space, int64_t most_ranks);

}  // namespace heddle::search
