// AsyncTensorParallel: collectives of tensor parallelism, and the products around them, in chunks, so that one chunk computes while another
// communicates. Where every chunk of rows is there as soon as its own rows are, nothing waits for all of them.
//
//   gather, products, scatter                   one after the other: compute stands still twice
//   gather 0 | products 0 | scatter 0           in two chunks: products 0 run beside gather 1,
//   gather 1 |            | products 1 | ...    products 1 beside scatter 0
//
// 1. Collectives that no order can hide are seeds (StepShape's windows).
// 2. Around them, whatever can be divided into chunks of rows is (ChunkRegion); what needs the whole gets it back by a copy.
// 3. Chunks take turns (OrderOfChunks).
// 4. Simulations decide: how many chunks, along which dimension, in which phases, and whether at all.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "heddle/compile/passes/overlap/overlap.h"

namespace heddle::compile {

struct AsyncOptions {
  // 2 or more: so many, whether that is faster or not. 0: what simulations find best.
  int64_t chunks = 0;
  // What schedules are judged by.
  OverlapOptions overlap;
};

struct AsyncResult {
  Changed changed = Changed::kNo;
  int64_t chunks = 1;
  size_t collectives = 0;
  Nanos before;
  Nanos after;
  // Times of new nodes by name, where the times of those that they stand for were measured.
  std::map<std::string, Nanos, std::less<>> times;
};

// The model with times of more nodes beside those that were measured.
Result<price::CostModel> WithTimes(const price::CostModel& model,
                                   const std::map<std::string, Nanos, std::less<>>& times);

Result<AsyncResult> AsyncTensorParallel(const Module& module, Graph& graph,
                                        const price::CostModel& model,
                                        const price::SimulateOptions& sim,
                                        const AsyncOptions& options);

}  // namespace heddle::compile
