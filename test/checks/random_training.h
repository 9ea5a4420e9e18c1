// Random training steps as one rank runs them, for passes that schedule the collectives of FSDP.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

// Returns a local graph on a mesh [rep=2,dp=2]. Units have one to three parameters, and some are
// read by other units, too. Forward casts and gathers each, transposes or reshapes some, and
// computes. Backward runs in reverse, reads the gathered weights, and reduces gradients over both
// axes. There are side branches, other collectives in between, gradients that backward computes
// with, and random ops.
std::string RandomTraining(uint32_t seed);

}  // namespace heddle
