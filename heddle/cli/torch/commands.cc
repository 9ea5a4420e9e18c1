#include "heddle/cli/torch/commands.h"

namespace heddle {

void AddTorchCommands(CommandSet& commands) {
  AddCapture(commands);
  AddModels(commands);
  AddPlan(commands);
  AddSimModel(commands);
  AddVerify(commands);
}

}  // namespace heddle
