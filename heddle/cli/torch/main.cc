// heddle-torch: the program with all commands. `heddle` hands over to it for those that need libtorch, whose start takes longer
// than most commands do.
#include <iostream>

#include "heddle/cli/cli.h"
#include "heddle/cli/torch/commands.h"

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  heddle::Streams streams{std::cin, std::cout, std::cerr, heddle::WantsColor()};
  heddle::ExitCode code = heddle::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc),
                                                 streams, heddle::AddTorchCommands);
  std::cout.flush();
  std::cerr.flush();
  // Without libtorch's destructors, which take a tenth of a second and have nothing to save.
  std::_Exit(static_cast<int>(code));
}
