// ShareLayers: equal layers get one schedule, where the step is no longer for it.
//
// A block is what a schedule has between the begins of two layers: products of the one, gathers for the next, reductions of the one before.
// Layers share a schedule if their blocks are the same but for the number of the layer. The block of one layer is written to its neighbours,
// one after the other. What their blocks had besides goes to the block beyond. A replay judges each.
#pragma once

#include <span>
#include <vector>

#include "heddle/passes/overlap/layers/layer_words.h"
#include "heddle/passes/overlap/order/step_shape.h"
#include "heddle/sim/timeline/replay.h"

namespace heddle {

// Layers of a run, the last included, whose blocks are the same as those so many layers before.
struct SharedLayers {
  uint32_t run = 0;
  uint32_t first = 0;
  uint32_t last = 0;
  uint32_t period = 1;

  uint32_t count() const { return last - first + 1; }
};

// Longest stretches first. Layers that share with nobody stand alone.
std::vector<SharedLayers> FindShared(const LayerWords& words, std::span<const NodeId> order);

struct ShareOptions {
  Nanos longest;
  Bytes cap;
  // Collectives start in the order that they have.
  bool strict = false;
};

// `replay` is of the schedule, in its own order, and has what comes out.
void ShareLayers(const LayerWords& words, const StepShape& shape, const ShareOptions& options,
                 Replay& replay);

}  // namespace heddle
