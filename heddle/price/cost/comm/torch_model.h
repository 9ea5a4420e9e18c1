// PyTorch 2.13's analytical time of gathers and scatters, used by its overlap scheduler and its
// studies.
//
// A ring with the best of three protocols, on nodes of eight devices. The message size is input
// plus output.
#pragma once

#include "heddle/core/base/units.h"
#include "heddle/core/ops/collectives.h"

namespace heddle::price {

// The GPU generation whose constants the formula uses.
enum class TorchNetwork : uint8_t { kAmpere, kHopper };

// `given` is the input of one rank.
Nanos TorchTime(CollectiveKind kind, Bytes given, int64_t ranks, TorchNetwork network);

}  // namespace heddle::price
