// The flags of commands that train. TorchTitan's spelling where it has one.
#pragma once

#include "heddle/api/optimization_options.h"
#include "heddle/cli/flags.h"

namespace heddle {

struct TrainFlags : OptimizationOptions {
  void Declare(Flags& flags);
};

}  // namespace heddle
