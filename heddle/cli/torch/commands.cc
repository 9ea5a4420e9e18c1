#include "heddle/cli/torch/commands.h"

namespace heddle {

void AddTorchCommands(CommandSet& commands) {
  AddCapture(commands);
  AddExport(commands);
  AddGenerate(commands);
  AddKernels(commands);
  AddModels(commands);
  AddPlan(commands);
  AddSearch(commands);
  AddSimWithModel(commands);
  AddTrain(commands);
  AddTune(commands);
  AddVerify(commands);
}

}  // namespace heddle
