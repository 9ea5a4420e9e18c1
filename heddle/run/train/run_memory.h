// Memory of a training run: its state, and the graph that needs the most besides.
#pragma once

#include "heddle/core/base/units.h"
#include "heddle/run/train/session.h"

namespace heddle::run {

// Bytes of one rank, the one with the largest shards.
struct RunMemory {
  // Parameters, moments, buffers, and the copy that Session::Remember makes.
  Bytes state;
  // The most at any time: the state, and the batch, gradients and activations of a graph.
  Bytes peak;
};

// Memory that a session of these graphs allocates over all of its steps.
// `remembers`: Session::Remember is called before steps.
// `with_host`: the device is the host, so offloaded tensors count, too.
RunMemory MemoryOfRun(const StepModules& modules, bool remembers, bool with_host);

}  // namespace heddle::run
