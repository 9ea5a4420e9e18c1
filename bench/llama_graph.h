// Graphs of any size in the shape of a Llama training step on one rank: bucketed parameter gathers, tensor-parallel
// collectives, forward, loss, backward and gradient reductions. Made without libtorch, for benchmarks and tests.
#pragma once

#include "heddle/core/ir/graph.h"

namespace heddle {

struct LlamaGraphOptions {
  // Layers are added until the graph has at least so many nodes.
  size_t nodes = 36'000;
  int64_t dim = 4096;
  int64_t heads = 32;
  int64_t ffn = 14336;
  int64_t vocab = 128256;
  int64_t tokens = 8192;
  // Ranks that share each layer, with sequence parallelism; 1 for none.
  int64_t tp = 1;
  // As lowering leaves it, before any pass: a collective for each parameter, and backward reads what forward gathered.
  bool lowered = false;
};

// On a mesh [dp=8, tp]. Without tensor parallelism about 173 nodes and 3 collectives a layer.
Module MakeLlamaGraph(const LlamaGraphOptions& options);

}  // namespace heddle
