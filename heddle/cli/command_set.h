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
  template <typename T>
  void Add() {
    auto command = std::make_shared<T>();
    Command& added = commands_.emplace_back(Command{T::kName, T::kSummary, T::kNote});
    added.run = [command](const Streams& streams) { return command->Run(streams); };
    command->Declare(added.flags);
  }

  // A command that the help lists and this program cannot run.
  void AddListed(const char* name, const char* summary) {
    commands_.push_back(Command{name, summary, ""});
  }

  ExitCode Run(std::span<const std::string> args, const Streams& streams);

 private:
  struct Command {
    const char* name;
    const char* summary;
    const char* note;
    Flags flags = {};
    // None if it is only listed.
    std::function<ExitCode(const Streams&)> run = {};
  };

  std::string Help() const;
  static std::string Help(const Command& command);
  // Where the first argument is no command: `--help`, `--version`, and slips.
  Status RunWithoutCommand(std::span<const std::string> args, const Streams& streams) const;

  std::vector<Command> commands_;
};

}  // namespace heddle
