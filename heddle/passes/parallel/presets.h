// Plans for the usual ways of training in parallel, and their products.
//
// Data parallelism splits the batch over the axes `replicate` and `shard`, outermost first. Parameters are kept whole over
// `replicate` (DDP) and split over `shard` (FSDP); both together are HSDP. Tensor parallelism splits heads, hidden units and
// the vocabulary over `tensor`; with sequence parallelism, activations between blocks are split over it by position.
#pragma once

#include <string>

#include "heddle/ir/graph.h"
#include "heddle/passes/parallel/plan.h"

namespace heddle {

struct PresetOptions {
  // Names of axes of the mesh; empty where that kind is not used.
  std::string replicate = {};
  std::string shard = {};
  std::string tensor = {};
  bool sequence_parallel = true;
  // The loss works on logits that are split by vocabulary; otherwise they are gathered.
  bool split_loss = true;
};

// The plan for a captured graph: which parameters are cut by rows or columns is known by the names that Heddle's models give
// them; a parameter that is not known is replicated over `tensor`. Fails if an axis is missing from the mesh or named twice.
Result<Plan> MakePlan(const Graph& graph, const Mesh& mesh, const PresetOptions& options);

}  // namespace heddle
