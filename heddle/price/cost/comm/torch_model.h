// PyTorch 2.13's analytical time of gathers and scatters, which its overlap scheduler and studies of it go by.
//
// A ring with the best of three protocols, on nodes of eight devices. The message is what goes in and what comes out, added.
#pragma once

#include "heddle/core/base/units.h"
#include "heddle/core/ops/collectives.h"

namespace heddle::price {

enum class TorchNetwork : uint8_t { kAmpere, kHopper };

// `given` is what one rank hands in.
Nanos TorchTime(CollectiveKind kind, Bytes given, int64_t ranks, TorchNetwork network);

}  // namespace heddle::price
