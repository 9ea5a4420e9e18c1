// The flags with which placements are found, not written.
#pragma once

#include "heddle/cli/compile_flags.h"
#include "heddle/cli/torch/parallel_flags.h"
#include "heddle/search/find_plan.h"

namespace heddle {

struct AutoFlags {
  bool automatic = false;
  std::string mesh;
  TimeLimitFlag time_limit;

  void Declare(Flags& flags);
  // Fails for flags that say what is to be found.
  Status Check(const ParallelFlags& parallel) const;
  // The mesh as given, or that of the degrees. `local_batch_size` counts for each rank of the axes that presets split the batch over; for
  // each rank of all, where no axis has such a name.
  Result<ParallelFlags::Layout> MakeLayout(const ParallelFlags& parallel,
                                           const run::ModelConfig& config) const;
};

}  // namespace heddle
