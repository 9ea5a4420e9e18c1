// AsyncTensorParallel: divides tensor-parallel collectives and the surrounding matrix products into
// chunks, so that one chunk computes while another communicates. A chunk starts as soon as its own
// rows are available.
//
//   gather, products, scatter                   in sequence: compute is idle twice
//   gather 0 | products 0 | scatter 0           in two chunks: products 0 overlap gather 1,
//   gather 1 |            | products 1 | ...    and products 1 overlap scatter 0
//
// 1. Collectives that no order can hide are seeds (the windows of ScheduleConstraints).
// 2. Nodes around the seeds that can be divided by rows form a region (ChunkRegion). Other nodes
// get the whole tensor from a copy.
// 3. Chunks take turns (OrderOfChunks).
// 4. Simulations decide the number of chunks, the dimension, the phases, and whether to divide at
// all.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "heddle/compile/passes/overlap/overlap.h"

namespace heddle::compile {

struct AsyncOptions {
  // At least 2: use this number of chunks even if the step gets slower. 0: simulations decide.
  int64_t chunks = 0;
  // Options for the schedules that are compared.
  OverlapOptions overlap;
};

struct AsyncResult {
  Changed changed = Changed::kNo;
  int64_t chunks = 1;
  size_t collectives = 0;
  Nanos before;
  Nanos after;
  // Times of new nodes by name, if the times of their originals were measured.
  std::map<std::string, Nanos, std::less<>> times;
};

// The model, with additional times of nodes.
Result<price::CostModel> WithTimes(const price::CostModel& model,
                                   const std::map<std::string, Nanos, std::less<>>& times);

Result<AsyncResult> AsyncTensorParallel(const Module& module, Graph& graph,
                                        const price::CostModel& model,
                                        const price::SimulateOptions& sim,
                                        const AsyncOptions& options);

}  // namespace heddle::compile
