// Lower bounds on the step time of every pipeline schedule with the same stages on the same ranks.
#pragma once

#include "heddle/price/pipeline/times.h"

namespace heddle::price {

struct PipelineBounds {
  // No schedule takes less, whatever memory it uses.
  Nanos any;
  // No schedule takes less that keeps at most the given number of activations on each rank.
  Nanos within_memory;
};

// `in_flight`: per rank, the most stage activations (RankTimes) that may be alive; at least 1.
PipelineBounds FindPipelineBounds(const std::vector<int32_t>& rank_of_stage, int64_t micro_batches,
                                  const PipelineCosts& costs,
                                  const std::vector<int64_t>& in_flight);

}  // namespace heddle::price
