// The flags of a training run besides its model, mesh and optimizer. TorchTitan's spelling where it
// has one.
#pragma once

#include "heddle/api/loop_options.h"
#include "heddle/cli/flags.h"

namespace heddle {

struct JobFlags : LoopOptions {
  bool save_checkpoints = true;
  bool validate = true;
  bool write_events = true;

  void Declare(Flags& flags);
  // Data, learning rate and validation alone: what decides the numbers of a run.
  void DeclareSteps(Flags& flags);
};

}  // namespace heddle
