// The command line: one file per command, each adding itself to the set.
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

// Of heddle.
std::string_view Version();

// Where a command reads and writes, so that tests can run it in their own process.
struct Streams {
  // What standard input holds.
  std::function<Result<std::string>()> in;
  std::ostream& out;
  std::ostream& err;
  // `out` is a terminal whose user wants colours.
  bool color = false;
  // `out` is a terminal; and the columns of a line.
  bool terminal = false;
  size_t width = 100;
  // The command line: the program as the user called it, and its arguments.
  std::string program = "heddle";
  std::vector<std::string> args = {};
};
// Whether standard output is one. NO_COLOR says no (no-color.org).
bool WantsColor();
// Columns of a line of standard output: $COLUMNS or the width of the terminal; 100 without a
// terminal.
size_t OutputWidth();

class CommandSet;

// Runs `heddle ARGS...`; `args` does not hold the program's name. `add_more` adds the commands that need libtorch; without it
// they are only listed.
ExitCode RunCommandLine(const std::vector<std::string>& args, const Streams& streams,
                        void (*add_more)(CommandSet&) = nullptr);

// The same for a whole process. A command that could not write what it has to say fails.
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
// The same for a graph. A terminal gets a summary of a long one instead, unless `path` is `-`.
Status WriteGraph(const std::string& path, std::string_view text, const Streams& streams);
// An argument for a POSIX shell, in quotes where it needs them.
std::string ShellQuoted(std::string_view text);
// Prints JSON to standard output. Names of a graph may be any bytes: what is not UTF-8 is replaced.
void PrintJson(const nlohmann::ordered_json& json, const Streams& streams);
// Fails if two arguments both name standard input, which can be read once.
Status CheckOneInput(std::string_view a, const std::string& path_a, std::string_view b,
                     const std::string& path_b);
// Fails if several things would go to standard output. Each is given with whether it would.
Status CheckOneOutput(std::initializer_list<std::pair<std::string_view, bool>> things);
// Prints `note: ...` lines to standard error. Of the ranks of a job, one process does.
void PrintNotes(std::span<const std::string> notes, const Streams& streams);
// The variable that tells a rank that the process which launched it printed the notes.
constexpr const char* kLaunchedVariable = "HEDDLE_LAUNCHED";
// Prints diagnostics; the exit code of a user's mistake.
ExitCode Report(const Diagnostics& diagnostics, const Streams& streams);

}  // namespace heddle
