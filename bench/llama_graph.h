// Graphs of any size in the shape of a Llama training step on one rank: bucketed parameter gathers,
// tensor-parallel collectives, forward, loss, backward and gradient reductions. Independent of
// libtorch; for benchmarks and tests.
#pragma once

#include "heddle/core/ir/graph.h"

namespace heddle {

struct LlamaGraphOptions {
  // Adds layers until the graph has at least this number of nodes.
  size_t nodes = 36'000;
  int64_t dim = 4096;
  int64_t heads = 32;
  int64_t ffn = 14336;
  int64_t vocab = 128256;
  int64_t tokens = 8192;
  // Tensor-parallel degree, with sequence parallelism; 1: none.
  int64_t tp = 1;
  // The graph after lowering and before any pass: one collective per parameter, and backward uses
  // the weights that forward gathered.
  bool lowered = false;
};

// Makes a graph on a mesh [dp=8, tp]. Without tensor parallelism, a layer has about 173 nodes and 3
// collectives.
Module MakeLlamaGraph(const LlamaGraphOptions& options);

}  // namespace heddle
