// The commands that need libtorch.
#pragma once

#include "heddle/cli/command_set.h"

namespace heddle {

void AddCapture(CommandSet& commands);
void AddExport(CommandSet& commands);
void AddGenerate(CommandSet& commands);
void AddKernels(CommandSet& commands);
void AddModels(CommandSet& commands);
void AddPlan(CommandSet& commands);
void AddSearch(CommandSet& commands);
void AddSimWithModel(CommandSet& commands);
void AddTrain(CommandSet& commands);
void AddTune(CommandSet& commands);
void AddVerify(CommandSet& commands);

// Adds all of them, for RunCommandLine.
void AddTorchCommands(CommandSet& commands);

}  // namespace heddle
