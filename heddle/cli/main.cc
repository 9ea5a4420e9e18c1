// heddle: starts in a few milliseconds, and runs heddle-torch in the same folder for commands that
// need libtorch.
#include <cerrno>
#include <cstring>
#include <iostream>

#include <unistd.h>

#include "heddle/cli/cli.h"
#include "heddle/run/launch/launcher.h"

#if HEDDLE_TORCH
namespace {

// Replaces this process. Returns only on failure.
heddle::ExitCode RunTorchProgram(char** argv) {
  std::string path = heddle::run::ThisProgram();
  if (path.empty()) path = argv[0];
  path = path.substr(0, path.rfind('/') + 1) + "heddle-torch";
  ::execv(path.c_str(), argv);
  std::cerr << "cannot run `" << path << "`: " << std::strerror(errno) << "\n";
  return heddle::ExitCode::kFault;
}

}  // namespace
#endif

int main(int argc, char** argv) {
#if HEDDLE_TORCH
  std::vector<std::string> args(argv + 1, argv + argc);
  if (heddle::NeedsTorch(args)) return static_cast<int>(RunTorchProgram(argv));
#endif
  return static_cast<int>(heddle::RunProgram(argc, argv));
}
