#include "heddle/cli/command_set.h"

#include <algorithm>
#include <ostream>

#include "heddle/base/text.h"

namespace heddle {
namespace {

constexpr size_t kTextColumn = 34;
constexpr size_t kWidth = 100;

bool IsHelp(const std::string& arg) { return arg == "--help" || arg == "-h"; }

// `text` in lines that end before kWidth; all but the first begin at `column`.
std::string Wrap(std::string_view text, size_t column) {
  std::string out;
  size_t used = column;
  for (std::string_view word : Split(text, ' ')) {
    if (used > column && used + 1 + word.size() > kWidth) {
      out += "\n" + std::string(column, ' ');
      used = column;
    } else if (used > column) {
      out += ' ';
      ++used;
    }
    out += word;
    used += word.size();
  }
  return out + "\n";
}

// A name, and what it means beside it, or below it if the name is long.
std::string Entry(const std::string& name, std::string_view text) {
  std::string out = "  " + name;
  if (out.size() + 2 > kTextColumn) {
    out += "\n" + std::string(kTextColumn, ' ');
  } else {
    out.resize(kTextColumn, ' ');
  }
  return out + Wrap(text, kTextColumn);
}

}  // namespace

std::string CommandSet::Help(const Command& command) {
  std::string out = fmt::format("{}\nusage: heddle {}{}\n\n", Wrap(command.summary, 0),
                                command.Title(), command.flags.Usage());
  for (const auto& [name, text] : command.flags.Meanings()) out += Entry(name, text);
  out += Entry("-h, --help", "print this");
  if (*command.note != '\0') out += "\n" + Wrap(command.note, 0);
  return out;
}

std::string CommandSet::Help() const {
  std::string out =
      "Heddle: a graph compiler for distributed training\n\nusage: heddle COMMAND ...\n\n";
  for (const Command& command : commands_) {
    if (command.with_flag.empty()) out += Entry(command.name, command.summary);
  }
  return out +
         "\n`heddle COMMAND --help` describes a command; `heddle --version` says which heddle this "
         "is.\n" +
         Wrap(
             "Exit codes: 0 done, 1 the user's mistake, 2 a verification differed, 3 infeasible, "
             "4 a fault at run time.",
             0);
}

Status CommandSet::RunWithoutCommand(std::span<const std::string> args,
                                     const Streams& streams) const {
  if (args.empty()) return Error(Diag::kUsage, "no command given; `heddle --help` lists them");
  if (!args[0].starts_with('-')) {
    std::vector<std::string_view> names;
    for (const Command& command : commands_) names.emplace_back(command.name);
    return Error(Diag::kUnknownFlag, "unknown command `{}`{}", args[0],
                 NearestHint(args[0], names));
  }
  if (!IsHelp(args[0]) && args[0] != "--version")
    return Error(Diag::kUnknownFlag, "unknown argument `{}`; a command comes first", args[0]);
  if (args.size() > 1)
    return Error(Diag::kUsage, "{} is followed by `{}`; nothing follows it", args[0], args[1]);
  streams.out << (IsHelp(args[0]) ? Help() : fmt::format("heddle {}\n", Version()));
  return Done{};
}

ExitCode CommandSet::Run(std::span<const std::string> args, const Streams& streams) {
  auto command = std::ranges::find_if(commands_, [&](const Command& c) {
    return !args.empty() && args[0] == c.name &&
           (c.with_flag.empty() || HasFlag(args, c.with_flag));
  });
  if (command == commands_.end()) {
    Status done = RunWithoutCommand(args, streams);
    return done.ok() ? ExitCode::kDone : Report(done.diagnostics(), streams);
  }
  args = args.subspan(1);
  if (std::any_of(args.begin(), std::ranges::find(args, "--"), IsHelp)) {
    streams.out << Help(*command);
    return ExitCode::kDone;
  }
  if (!command->run)
    return Report(
        Error(Diag::kUsage, "`heddle {}` needs libtorch, and this heddle was built without it",
              command->Title())
            .diagnostics,
        streams);
  if (std::any_of(args.begin(), std::ranges::find(args, "--"),
                  [](const std::string& arg) { return arg == "--help-markdown"; })) {
    streams.out << command->flags.MarkdownTable();
    return ExitCode::kDone;
  }
  Status read = command->flags.Read(command->name, args);
  if (!read.ok()) return Report(read.diagnostics(), streams);
  for (const std::string& hint : command->flags.hints()) streams.err << "note: " << hint << "\n";
  if (const std::string* job = command->flags.shown_config()) {
    streams.out << *job;
    return ExitCode::kDone;
  }
  return command->run(streams);
}

}  // namespace heddle
