// Unrolls a step over the micro-batches of a pipeline schedule.
#pragma once

#include <vector>

#include "heddle/compile/passes/pipeline/staged_step.h"
#include "heddle/core/pipeline/schedule.h"

namespace heddle::compile {

// The number of micro-batches that share a gather of weights, or a reduction of gradients; 0: all.
struct UnrollGroups {
  int64_t gather = 0;
  int64_t reduce = 0;
};

// Returns one graph per coordinate of `axis`. Each has the nodes of its stages in the order of the
// schedule, which must be valid.
Result<std::vector<Graph>> Unroll(const Module& module, AxisId axis, const StagedStep& staged,
                                  const PipelineSchedule& schedule,
                                  const UnrollGroups& groups = {});

}  // namespace heddle::compile
