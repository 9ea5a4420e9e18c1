#include "heddle/cli/command_set.h"

#include <algorithm>
#include <ostream>
#include <set>

#include "heddle/cli/manual/help.h"
#include "heddle/core/base/text.h"

namespace heddle {
namespace {

bool IsHelpFlag(const std::string& arg) { return arg == "--help" || arg == "-h"; }

}  // namespace

CommandInfo CommandSet::Command::Describe() const {
  return {name, summary, note, examples, flags.Usage(), flags.Infos()};
}

std::vector<CommandInfo> CommandSet::Describe() const {
  std::vector<CommandInfo> out;
  for (const Command& command : commands_) out.push_back(command.Describe());
  std::ranges::stable_sort(out, {}, &CommandInfo::name);
  return out;
}

Status CommandSet::RunWithoutCommand(std::span<const std::string> args,
                                     const Streams& streams) const {
  if (!args.empty() && args[0].empty())
    return Error(Diag::kUsage, "the command is empty; `heddle help` lists the commands");
  if (!args.empty() && !args[0].starts_with('-')) {
    std::vector<std::string_view> names = {"help"};
    for (const Command& command : commands_) names.emplace_back(command.name);
    return Error(Diag::kUnknownFlag, "unknown command `{}`{}", args[0],
                 NearestHint(args[0], names));
  }
  bool version = !args.empty() && args[0] == "--version";
  if (!args.empty() && !IsHelpFlag(args[0]) && !version)
    return Error(Diag::kUnknownFlag, "unknown argument `{}`; a command comes first", args[0]);
  if (args.size() > 1)
    return Error(Diag::kUsage, "{} is followed by `{}`; nothing follows it", args[0], args[1]);
  streams.out << (version ? fmt::format("heddle {}\n", Version())
                          : FormatHelp(Describe(), streams.width));
  return Done{};
}

CommandSet::Command* CommandSet::Find(std::span<const std::string> args) {
  auto command = std::ranges::find_if(
      commands_, [&](const Command& c) { return !args.empty() && args[0] == c.name; });
  return command == commands_.end() ? nullptr : &*command;
}

ExitCode CommandSet::Run(std::span<const std::string> args, const Streams& streams) {
  // `help opt` means `opt --help`.
  bool help = !args.empty() && args[0] == "help";
  if (help) args = args.subspan(1);
  Command* command = Find(args);
  if (command == nullptr) {
    Status done = RunWithoutCommand(args, streams);
    return done.ok() ? ExitCode::kDone : Report(done.diagnostics(), streams);
  }
  args = args.subspan(1);
  auto has = [&](auto&& test) {
    return std::any_of(args.begin(), std::ranges::find(args, "--"), test);
  };
  if (help || has(IsHelpFlag)) {
    streams.out << FormatHelp(command->Describe(), streams.width);
    return ExitCode::kDone;
  }
  if (!command->run)
    return Report(
        Error(Diag::kUsage, "`heddle {}` needs libtorch, and this heddle was built without it",
              command->name)
            .diagnostics,
        streams);
  if (has([](const std::string& arg) { return arg == "--help-markdown"; })) {
    streams.out << command->flags.MarkdownTable();
    return ExitCode::kDone;
  }
  // Several commands may share a job file.
  std::set<std::string> keys;
  for (const Command& other : commands_) keys.merge(other.flags.Keys());
  command->flags.AcceptKeys(std::move(keys));
  Status read = command->flags.Read(command->name, args);
  if (!read.ok()) return Report(read.diagnostics(), streams);
  PrintNotes(command->flags.Notes(), streams);
  if (const std::string* job = command->flags.shown_config()) {
    streams.out << *job;
    return ExitCode::kDone;
  }
  Result<ExitCode> code = command->run(streams);
  return code.ok() ? *code : Report(code.diagnostics(), streams);
}

}  // namespace heddle
