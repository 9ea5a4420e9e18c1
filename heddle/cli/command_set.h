// The commands of the program, found by name, and their help.
#pragma once

#include <memory>

#include "heddle/cli/cli.h"
#include "heddle/cli/flags.h"

namespace heddle {

// A command, as the help, the man page and the completions show it.
struct CommandInfo {
  std::string name;
  // The name, with the flag that selects it among several: `sim --model`.
  std::string title;
  std::string summary;
  std::string note;
  // Command lines, one per line.
  std::string examples;
  // The arguments in short: ` FILE [FLAGS]`.
  std::string usage;
  std::vector<FlagInfo> flags;
};

class CommandSet {
 public:
  // A command is a struct with fields for its arguments and
  //   static constexpr const char *kName, *kSummary, *kNote, *kExamples;
  //   void Declare(Flags&);
  //   ExitCode Run(const Streams&) const;
  // and, where another command has the same name, the flag that selects this one:
  //   static constexpr const char* kWithFlag;
  // `args` are for its constructor.
  template <typename T, typename... Args>
  void Add(Args&&... args) {
    auto command = std::make_shared<T>(std::forward<Args>(args)...);
    Command& added = commands_.emplace_back(Command{T::kName, T::kSummary, T::kNote, T::kExamples});
    if constexpr (requires { T::kWithFlag; }) added.with_flag = T::kWithFlag;
    added.run = [command](const Streams& streams) { return command->Run(streams); };
    command->Declare(added.flags);
  }

  // A command that the help lists and this program cannot run.
  void AddListed(const TorchCommand& command) {
    commands_.push_back(Command{command.name, command.summary, "", "", command.with_flag});
  }

  ExitCode Run(std::span<const std::string> args, const Streams& streams);
  std::vector<CommandInfo> Describe() const;

 private:
  struct Command {
    const char* name;
    const char* summary;
    const char* note;
    const char* examples;
    // Empty, or the flag that selects it among the commands of its name. The help lists the one
    // without.
    std::string_view with_flag = {};
    Flags flags = {};
    // Null if it is only listed.
    std::function<ExitCode(const Streams&)> run = {};

    CommandInfo Describe() const;
  };

  Command* Find(std::span<const std::string> args);
  // For a first argument that is not a command: `--help`, `--version`, and mistakes.
  Status RunWithoutCommand(std::span<const std::string> args, const Streams& streams) const;

  std::vector<Command> commands_;
};

}  // namespace heddle
