// The commands of the program, by name, and their help.
#pragma once

#include <deque>
#include <memory>

#include "heddle/cli/cli.h"
#include "heddle/cli/flags/flags.h"

namespace heddle {

// A command as the help, the man page and the completions show it.
struct CommandInfo {
  std::string name;
  std::string summary;
  std::string note;
  // Command lines, one per line.
  std::string examples;
  // Summary of the arguments: ` FILE [FLAGS]`.
  std::string usage;
  std::vector<FlagInfo> flags;
};

class CommandSet {
 public:
  // A command is a struct with fields for its arguments and
  //   static constexpr const char *kName, *kSummary, *kNote, *kExamples;
  //   void Declare(Flags&);
  //   Status Run(const Streams&) const;  // or Result<ExitCode>
  // One that needs libtorch has its summary in cli.cc. `args` are for its constructor.
  template <typename T, typename... Args>
  void Add(Args&&... args) {
    auto command = std::make_shared<T>(std::forward<Args>(args)...);
    Command& added = commands_.emplace_back(Command{T::kName, "", T::kNote, T::kExamples});
    if constexpr (requires { T::kSummary; })
      added.summary = T::kSummary;
    else
      added.summary = SummaryOf(T::kName);
    added.run = [command](const Streams& streams) -> Result<ExitCode> {
      if constexpr (std::is_same_v<decltype(command->Run(streams)), Status>) {
        HEDDLE_RETURN_IF_ERROR(command->Run(streams));
        return ExitCode::kDone;
      } else {
        return command->Run(streams);
      }
    };
    command->Declare(added.flags);
  }

  // A command that the help lists but this program cannot run.
  void AddListed(const TorchCommand& command) {
    commands_.push_back(Command{command.name, command.summary, "", ""});
  }

  ExitCode Run(std::span<const std::string> args, const Streams& streams);
  std::vector<CommandInfo> Describe() const;

 private:
  struct Command {
    const char* name;
    const char* summary;
    const char* note;
    const char* examples;
    Flags flags = {};
    // Null if the command is only listed.
    std::function<Result<ExitCode>(const Streams&)> run = {};

    CommandInfo Describe() const;
  };

  Command* Find(std::span<const std::string> args);
  // Handles a first argument that is not a command: `--help`, `--version`, and errors.
  Status RunWithoutCommand(std::span<const std::string> args, const Streams& streams) const;

  // Commands may refer to their flags, so those must not move.
  std::deque<Command> commands_;
};

}  // namespace heddle
