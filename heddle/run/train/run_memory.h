// Memory of a training run: its state, and the peak of its graphs.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "heddle/core/base/units.h"
#include "heddle/run/train/session.h"

namespace heddle::run {

// The peak memory of a graph, including its inputs; and the names and bytes of the values allocated
// then, largest first.
struct GraphPeak {
  Bytes bytes;
  std::vector<std::pair<std::string, Bytes>> largest;
  // Copies of parameters (WeightCopies), which `bytes` contains.
  Bytes copies = {};
};

// Bytes of one rank, the one with the largest shards: of all that run the same programs.
struct RunMemory {
  // Parameters and their copies, moments, buffers, and the copy that Session::Remember makes.
  Bytes state;
  // The peak: the state, and the batch, gradients and activations of a graph.
  Bytes peak;
  // GraphPeak::largest of the graph with the peak.
  std::vector<std::pair<std::string, Bytes>> largest = {};
};

// Returns the memory that a session of these graphs allocates over all its steps: one entry per
// coordinate of a pipeline, or one for all ranks.
//
// - `remembers`: Session::Remember is called before steps.
// - `with_host`: the device is the host, so offloaded tensors count, too.
// - `peak_of`: returns the peak of a graph that does not run node by node. Called for the step
//   first.
std::vector<RunMemory> MemoryOfRun(const StepModules& modules, bool remembers, bool with_host,
                                   const std::function<GraphPeak(const Graph&)>& peak_of = {});

}  // namespace heddle::run
