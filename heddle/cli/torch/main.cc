// heddle-torch: the program with all commands. `heddle` runs it for commands that need libtorch,
// because starting libtorch takes longer than most commands.
#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "heddle/cli/cli.h"
#include "heddle/cli/torch/commands.h"

namespace {

// Capture runs autograd, which would start the driver of every visible GPU. That takes a fifth of a
// second, although the command computes nothing.
void HideGpusFrom(std::string_view command) {
  constexpr std::string_view kPlanning[] = {"capture", "plan", "search", "sim"};
  if (std::ranges::find(kPlanning, command) != std::end(kPlanning))
    ::setenv("CUDA_VISIBLE_DEVICES", "", /*overwrite=*/1);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) HideGpusFrom(argv[1]);
  heddle::ExitCode code = heddle::RunProgram(argc, argv, heddle::AddTorchCommands);
  // Skips libtorch's destructors, which take a tenth of a second and have nothing to save.
  std::_Exit(static_cast<int>(code));
}
