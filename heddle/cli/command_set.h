// The commands of the program, found by name, and their help.
#pragma once

#include <memory>

#include "heddle/cli/cli.h"
#include "heddle/cli/flags.h"

namespace heddle {

class CommandSet {
 public:
  // A command is a struct with fields for its arguments and
  //   static constexpr const char *kName, *kSummary, *kNote;
  //   void Declare(Flags&);
  //   ExitCode Run(const Streams&) const;
  // and, where another command of its name is for all other arguments, the flag that tells them apart:
  //   static constexpr const char* kWithFlag;
  template <typename T>
  void Add() {
    auto command = std::make_shared<T>();
    Command& added = commands_.emplace_back(Command{T::kName, T::kSummary, T::kNote});
    if constexpr (requires { T::kWithFlag; }) added.with_flag = T::kWithFlag;
    added.run = [command](const Streams& streams) { return command->Run(streams); };
    command->Declare(added.flags);
  }

  // A command that the help lists and this program cannot run.
  void AddListed(const TorchCommand& command) {
    commands_.push_back(Command{command.name, command.summary, "", command.with_flag});
  }

  ExitCode Run(std::span<const std::string> args, const Streams& streams);

 private:
  struct Command {
    const char* name;
    const char* summary;
    const char* note;
    // Empty, or the flag that makes it this one of several of its name; the help lists the one without.
    std::string_view with_flag = {};
    Flags flags = {};
    // None if it is only listed.
    std::function<ExitCode(const Streams&)> run = {};

    // `sim --model`
    std::string Title() const {
      return name + (with_flag.empty() ? "" : " " + std::string(with_flag));
    }
  };

  std::string Help() const;
  static std::string Help(const Command& command);
  // Where the first argument is no command: `--help`, `--version`, and slips.
  Status RunWithoutCommand(std::span<const std::string> args, const Streams& streams) const;

  std::vector<Command> commands_;
};

}  // namespace heddle
