#include "heddle/cli/cli.h"

#include <algorithm>
#include <cstdlib>
#include <istream>
#include <iterator>
#include <ostream>

#include <unistd.h>

#include "heddle/base/file.h"
#include "heddle/cli/commands.h"
#include "heddle/ir/parse.h"
#include "heddle/ops/ops.h"

namespace heddle {

namespace {
// Listed here so that the program without libtorch knows what it is asked for.
constexpr TorchCommand kTorchCommands[] = {
    {"capture", "Capture one training step of a model as a graph"},
    {"models", "List models, flavors, layers and numbers of parameters"},
    {"plan", "Spread a training step over ranks and say what it takes"},
};
}  // namespace

std::span<const TorchCommand> TorchCommands() { return kTorchCommands; }

bool IsTorchCommand(std::string_view name) {
  return std::ranges::any_of(kTorchCommands, [&](const TorchCommand& c) { return c.name == name; });
}

ExitCode RunCommandLine(std::vector<std::string> args, const Streams& streams,
                        void (*add_more)(CommandSet&)) {
  CommandSet commands;
  if (add_more != nullptr) {
    add_more(commands);
  } else {
    for (const TorchCommand& command : kTorchCommands)
      commands.AddListed(command.name, command.summary);
  }
  AddCheck(commands);
  AddDiff(commands);
  AddDoc(commands);
  AddOpt(commands);
  AddParallelize(commands);
  AddReduce(commands);
  AddSim(commands);
  AddStats(commands);
  return commands.Run(std::move(args), streams);
}

bool WantsColor() {
  const char* refused = std::getenv("NO_COLOR");
  return (refused == nullptr || *refused == '\0') && ::isatty(STDOUT_FILENO) != 0;
}

Result<std::string> ReadInput(const std::string& path, const Streams& streams) {
  if (path != "-") return ReadFile(path);
  return std::string(std::istreambuf_iterator<char>(streams.in), {});
}

std::string InputName(const std::string& path) { return path == "-" ? "<stdin>" : path; }

Result<Module> LoadModule(const std::string& path, const Streams& streams) {
  HEDDLE_TRY(std::string text, ReadInput(path, streams));
  return ParseModule(std::move(text), InputName(path), Ops());
}

Status WriteOutput(const std::string& path, std::string_view content, const Streams& streams) {
  if (!path.empty() && path != "-") return WriteFile(path, content);
  streams.out << content;
  streams.out.flush();
  if (!streams.out) return Error(Diag::kFileWrite, "cannot write to standard output");
  return Done{};
}

ExitCode Report(const Diagnostics& diagnostics, const Streams& streams) {
  streams.err << Format(diagnostics);
  return ExitCode::kUserMistake;
}

}  // namespace heddle
