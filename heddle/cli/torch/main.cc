// heddle-torch: the program with all commands. `heddle` hands over to it for those that need libtorch, whose start takes longer
// than most commands do.
#include <cstdlib>

#include "heddle/cli/cli.h"
#include "heddle/cli/torch/commands.h"

int main(int argc, char** argv) {
  heddle::ExitCode code = heddle::RunProgram(argc, argv, heddle::AddTorchCommands);
  // Without libtorch's destructors, which take a tenth of a second and have nothing to save.
  std::_Exit(static_cast<int>(code));
}
