// The device memory of a step, as its execution allocates it.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heddle/price/cost/cost_model.h"

namespace heddle::price {

struct StepMemory {
  // Values at the peak, including inputs.
  Bytes peak;
  Bytes inputs;
  // Values that forward leaves for backward.
  Bytes kept;
};
// Heddle's device program has its own memory. Other executions allocate the values of the graph
// node by node, at most `value_peak`.
StepMemory MemoryOfStep(const Graph& graph, const CostModel& model, Bytes value_peak);

}  // namespace heddle::price
