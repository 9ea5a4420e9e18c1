// heddle: starts in a few milliseconds; hands over to heddle-torch, beside it, for the commands that need libtorch.
#include <array>
#include <cerrno>
#include <climits>
#include <cstring>
#include <iostream>

#include <unistd.h>

#include "heddle/cli/cli.h"

namespace {

// Replaces this process. Returns only if that fails.
int RunTorchProgram(char** argv) {
#if HEDDLE_TORCH
  std::array<char, PATH_MAX> self{};
  ssize_t length = ::readlink("/proc/self/exe", self.data(), self.size() - 1);
  std::string path = length > 0 ? std::string(self.data(), static_cast<size_t>(length)) : argv[0];
  path = path.substr(0, path.rfind('/') + 1) + "heddle-torch";
  ::execv(path.c_str(), argv);
  std::cerr << "cannot run `" << path << "`: " << std::strerror(errno) << "\n";
  return static_cast<int>(heddle::ExitCode::kFault);
#else
  std::cerr << "`heddle " << argv[1] << "` needs libtorch, and this heddle was built without it\n";
  return static_cast<int>(heddle::ExitCode::kUserMistake);
#endif
}

}  // namespace

int main(int argc, char** argv) {
  std::ios::sync_with_stdio(false);
  std::vector<std::string> args(argv + 1, argv + argc);
  if (!args.empty() && heddle::IsTorchCommand(args[0])) return RunTorchProgram(argv);
  heddle::Streams streams{std::cin, std::cout, std::cerr, heddle::WantsColor()};
  return static_cast<int>(heddle::RunCommandLine(std::move(args), streams));
}
