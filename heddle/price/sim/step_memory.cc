#include "heddle/price/sim/step_memory.h"

#include "heddle/core/analysis/memory.h"
#include "heddle/core/kernel/kernel_memory.h"

namespace heddle::price {

StepMemory MemoryOfStep(const Graph& graph, const CostModel& model, Bytes value_peak) {
  if (model.HasDeviceProgram()) {
    // Copies of weights do not change the peak.
    KernelMemory memory = MemoryWithKernels(graph, std::set<int64_t>());
    return {memory.peak, memory.inputs, memory.kept};
  }
  Liveness liveness(graph);
  return {value_peak, ComputeMemoryTimeline(graph, liveness).inputs, KeptForBackward(graph)};
}

}  // namespace heddle::price
