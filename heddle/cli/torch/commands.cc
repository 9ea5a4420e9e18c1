#include "heddle/cli/torch/commands.h"

namespace heddle {

void AddTorchCommands(CommandSet& commands) {
  AddCapture(commands);
  AddExport(commands);
  AddModels(commands);
  AddPlan(commands);
  AddVerify(commands);
}

}  // namespace heddle
