// The flags of parallelism. TorchTitan's spelling where it has one.
#pragma once

#include "heddle/api/parallel_options.h"
#include "heddle/cli/cli.h"
#include "heddle/cli/flags.h"

namespace heddle {

struct ParallelFlags : ParallelOptions {
  void Declare(Flags& flags);
  // These options, with the plan if that is standard input.
  Result<ParallelOptions> WithPlan(const Streams& streams) const;
};

}  // namespace heddle
