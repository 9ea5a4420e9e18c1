#include "heddle/cli/cli.h"

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <new>
#include <sstream>

#include <sys/ioctl.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "heddle/cli/commands.h"
#include "heddle/cli/step/sim.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/check/parse_module.h"
#include "heddle/core/ops/ops.h"
#include "heddle/report/stats.h"

namespace heddle {

namespace {
// Listed here so that the program without libtorch can name them.
constexpr TorchCommand kTorchCommands[] = {
    {"capture", "Capture one training step of a model as a graph"},
    {"export", "Write a checkpoint or weights as a Hugging Face folder"},
    {"generate", "Generate text with a trained model"},
    {"kernels", "List the kernels that a step launches on a GPU"},
    {"models", "List models and their flavors, layers and parameter counts"},
    {"plan", "Partition a training step over ranks and report its memory, work and communication"},
    {"search", "Find the fastest mesh, placements, micro-batches and checkpointing for N devices"},
    {"train", "Train a model on one or many ranks"},
    {"tune", "Choose the fastest algorithms for the matrix products of a step on a GPU"},
    {"verify", "Train in two ways and compare every bit after every step"},
};

// Buffers standard output. It is written when a command flushes and at the end, so that one place
// checks for write errors.
class OutputBuffer final : public std::stringbuf {
 public:
  // The first failure.
  const Status& status() const { return status_; }

 private:
  int sync() override {
    Status written = WriteStandardOutput(view());
    str({});
    if (!written.ok() && status_.ok()) status_ = std::move(written);
    return status_.ok() ? 0 : -1;
  }

  Status status_ = Done{};
};

}  // namespace

std::string_view Version() { return HEDDLE_VERSION; }

const char* SummaryOf(std::string_view torch_command) {
  auto found = std::ranges::find_if(kTorchCommands,
                                    [&](const TorchCommand& c) { return c.name == torch_command; });
  HEDDLE_CHECK(found != std::end(kTorchCommands), torch_command);
  return found->summary;
}

bool NeedsTorch(std::span<const std::string> args) {
  if (args.empty()) return false;
  if (args[0] == "help")
    return args.size() > 1 && (args[1] == "sim" || NeedsTorch(args.subspan(1)));
  // A job file may have keys of commands that only the other program has.
  auto is_config = [](const std::string& arg) {
    return arg == "--config" || arg.starts_with("--config=");
  };
  if (std::any_of(args.begin(), std::ranges::find(args, "--"), is_config)) return true;
  if (args[0] == "sim") return !SimulatesFile(args.subspan(1));
  bool describes_all =
      args[0] == "completion" || (args[0] == "doc" && std::ranges::find(args, "man") != args.end());
  return describes_all || std::ranges::any_of(kTorchCommands, [&](const TorchCommand& c) {
           return c.name == args[0];
         });
}

ExitCode RunCommandLine(const std::vector<std::string>& args, const Streams& caller,
                        void (*add_more)(CommandSet&)) {
  Streams streams = caller;
  streams.args = args;
  CommandSet commands;
  if (add_more != nullptr) {
    add_more(commands);
  } else {
    for (const TorchCommand& command : kTorchCommands) commands.AddListed(command);
    AddSim(commands);
  }
  AddCalibrate(commands);
  AddCheck(commands);
  AddCheckpoint(commands);
  AddCompletion(commands);
  AddDiff(commands);
  AddDoc(commands);
  AddImport(commands);
  AddMemory(commands);
  AddOpt(commands);
  AddOverlap(commands);
  AddParallelize(commands);
  AddReduce(commands);
  AddReport(commands);
  AddSchedule(commands);
  AddSolve(commands);
  AddStats(commands);
#if HEDDLE_TOKENIZER
  AddTokenize(commands);
#endif
  return commands.Run(args, streams);
}

ExitCode RunProgram(int argc, char** argv, void (*add_more)(CommandSet&)) {
  OccupyStandardStreams();
  // A reader that stops early, such as `head`, ends this process silently, even if the parent
  // process ignores SIGPIPE.
  std::signal(SIGPIPE, SIG_DFL);
  // A write beyond `ulimit -f` fails like a write to a full disk, and is reported.
  std::signal(SIGXFSZ, SIG_IGN);
  OutputBuffer buffer;
  std::ostream out(&buffer);
  bool terminal = ::isatty(STDOUT_FILENO) != 0;
  Streams streams{ReadStandardInput, out, std::cerr, WantsColor(), terminal, OutputWidth()};
  if (argc > 0) streams.program = argv[0];
  ExitCode code = ExitCode::kFault;
  try {
    code = RunCommandLine(std::vector<std::string>(argv + 1, argv + argc), streams, add_more);
  } catch (const std::bad_alloc&) {
    std::cerr << "out of memory\n";
    return code;
  }
  out.flush();
  const Status& written = buffer.status();
  if (!written.ok()) code = Report(written.diagnostics(), streams);
  std::cerr.flush();
  return code == ExitCode::kDone && !std::cerr ? ExitCode::kUserMistake : code;
}

bool WantsColor() {
  const char* refused = std::getenv("NO_COLOR");
  return (refused == nullptr || *refused == '\0') && ::isatty(STDOUT_FILENO) != 0;
}

size_t OutputWidth() {
  constexpr size_t kOtherwise = 100;
  constexpr size_t kLeast = 40;
  constexpr size_t kMost = 120;
  if (::isatty(STDOUT_FILENO) == 0) return kOtherwise;
  winsize size{};
  size_t columns = ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
  if (const char* given = std::getenv("COLUMNS"); given != nullptr && std::atoi(given) > 0)
    columns = static_cast<size_t>(std::atoi(given));
  return columns == 0 ? kOtherwise : std::clamp(columns, kLeast, kMost);
}

Result<std::string> ReadInput(const std::string& path, const Streams& streams) {
  if (path != "-") return ReadFile(path);
  return streams.in();
}

std::string InputName(const std::string& path) { return path == "-" ? "<stdin>" : path; }

Result<Module> LoadModule(const std::string& path, const Streams& streams) {
  HEDDLE_TRY(std::string text, ReadInput(path, streams));
  return ParseModule(std::move(text), InputName(path), Ops());
}

Status WriteOutput(const std::string& path, std::string_view content, const Streams& streams) {
  if (!path.empty() && path != "-") return WriteFile(path, content);
  streams.out << content;
  return Done{};
}

Status WriteGraph(const std::string& path, std::string_view text, const Streams& streams) {
  // More than a few screens.
  constexpr int64_t kMostLines = 200;
  int64_t lines = std::ranges::count(text, '\n');
  if (!path.empty() || !streams.terminal || lines <= kMostLines)
    return WriteOutput(path, text, streams);
  HEDDLE_TRY(Module module, ParseModule(std::string(text), "the graph", Ops()));
  for (const Graph& graph : module.graphs)
    streams.out << FormatStats(ComputeStats(module, graph)) << "\n";
  streams.out << fmt::format(
      "the graph has {} lines; `-o FILE` writes it to a file, `-o -` prints it here\n",
      WithCommas(lines));
  return Done{};
}

std::string ShellQuoted(std::string_view text) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string_view::npos)
    return std::string(text);
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

void PrintJson(const nlohmann::ordered_json& json, const Streams& streams) {
  streams.out << json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) << "\n";
}

Status CheckOneInput(std::string_view a, const std::string& path_a, std::string_view b,
                     const std::string& path_b) {
  if (path_a != "-" || path_b != "-") return Done{};
  return Error(Diag::kUsage, "{} and {} are both `-`; standard input can be read once", a, b);
}

Status CheckOneOutput(std::initializer_list<std::pair<std::string_view, bool>> things) {
  std::string_view first;
  for (const auto& [thing, there] : things) {
    if (there && !first.empty())
      return Error(Diag::kUsage,
                   "{} and {} would both write to standard output; name a file for one of them",
                   first, thing);
    if (there) first = thing;
  }
  return Done{};
}

void PrintNotes(std::span<const std::string> notes, const Streams& streams) {
  const char* rank = std::getenv("RANK");
  bool other_rank = rank != nullptr && std::string_view(rank) != "0";
  if (other_rank || std::getenv(kLaunchedVariable) != nullptr) return;
  for (const std::string& note : notes) streams.err << fmt::format("note: {}\n", note);
}

ExitCode Report(const Diagnostics& diagnostics, const Streams& streams) {
  streams.err << Format(diagnostics);
  auto has = [&](std::initializer_list<Diag> kinds) {
    return std::ranges::any_of(
        diagnostics, [&](const Diagnostic& d) { return std::ranges::count(kinds, d.kind) > 0; });
  };
  if (has({Diag::kInfeasible})) return ExitCode::kInfeasible;
  // Failures that the user's files and flags cannot cause.
  bool fault = has({Diag::kRunFault, Diag::kPeers, Diag::kLaunch, Diag::kNoAnswer});
  return fault ? ExitCode::kFault : ExitCode::kUserMistake;
}

}  // namespace heddle
