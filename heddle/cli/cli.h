// The command line. Each command has its own file, which adds it to the command set.
#pragma once

#include <functional>
#include <iosfwd>
#include <span>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

enum class ExitCode : int {
  kDone = 0,
  kUserMistake = 1,
  kDiffers = 2,
  kInfeasible = 3,
  kFault = 4
};

// The version of heddle.
std::string_view Version();

// Input and output of a command, so that tests can run it in their own process.
struct Streams {
  // Returns the content of standard input.
  std::function<Result<std::string>()> in;
  std::ostream& out;
  std::ostream& err;
  // Whether `out` is a terminal whose user wants colours.
  bool color = false;
  // Whether `out` is a terminal; and the columns of a line.
  bool terminal = false;
  size_t width = 100;
  // The command line: the program's name as the user called it, and its arguments.
  std::string program = "heddle";
  std::vector<std::string> args = {};
};
// Whether standard output is a terminal and NO_COLOR is not set (no-color.org).
bool WantsColor();
// Columns of a line of standard output: $COLUMNS or the width of the terminal; 100 without a
// terminal.
size_t OutputWidth();

class CommandSet;

// Runs `heddle ARGS...`; `args` excludes the program's name. `add_more` adds the commands that need
// libtorch. Without it they are only listed.
ExitCode RunCommandLine(const std::vector<std::string>& args, const Streams& streams,
                        void (*add_more)(CommandSet&) = nullptr);

// The same for a whole process. Fails if the output cannot be written.
ExitCode RunProgram(int argc, char** argv, void (*add_more)(CommandSet&) = nullptr);

// A command that needs libtorch.
struct TorchCommand {
  const char* name;
  const char* summary;
};
// Whether `heddle ARGS...` needs libtorch: to run a command, or to describe it.
bool NeedsTorch(std::span<const std::string> args);
// The summary of a command that needs libtorch.
const char* SummaryOf(std::string_view torch_command);

// --- For the command files

// The content of a file, or of standard input for `-`.
Result<std::string> ReadInput(const std::string& path, const Streams& streams);
// The name of an input in diagnostics.
std::string InputName(const std::string& path);
// Reads, parses and verifies.
Result<Module> LoadModule(const std::string& path, const Streams& streams);
// To a file, or to standard output if `path` is empty or `-`.
Status WriteOutput(const std::string& path, std::string_view content, const Streams& streams);
// The same for a graph. For a long graph, a terminal gets a summary instead, unless `path` is `-`.
Status WriteGraph(const std::string& path, std::string_view text, const Streams& streams);
// An argument for a POSIX shell, quoted if necessary.
std::string ShellQuoted(std::string_view text);
// Prints JSON to standard output. Replaces bytes of names that are not UTF-8.
void PrintJson(const nlohmann::ordered_json& json, const Streams& streams);
// Fails if two arguments both name standard input, which can be read once.
Status CheckOneInput(std::string_view a, const std::string& path_a, std::string_view b,
                     const std::string& path_b);
// Fails if several outputs would go to standard output. Each has a name and whether it would.
Status CheckOneOutput(std::initializer_list<std::pair<std::string_view, bool>> things);
// Prints `note: ...` lines to standard error. In a job of several ranks, only one process prints.
void PrintNotes(std::span<const std::string> notes, const Streams& streams);
// The environment variable that tells a rank that its launcher has printed the notes.
constexpr const char* kLaunchedVariable = "HEDDLE_LAUNCHED";
// Prints diagnostics and returns the exit code for a user error.
ExitCode Report(const Diagnostics& diagnostics, const Streams& streams);

}  // namespace heddle
