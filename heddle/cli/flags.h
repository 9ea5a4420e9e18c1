// What a command takes from the command line. A thin face over CLI11, so that one file pays for compiling it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/cli/cli.h"

namespace CLI {
class App;
}

namespace heddle {

// The arguments of one command. Targets must outlive the parsing; their values at that time are the defaults, which the
// help shows.
class Flags {
 public:
  explicit Flags(CLI::App& app) : app_(app) {}

  void Positional(const std::string& name, std::string& target, const std::string& help,
                  std::vector<std::string> choices = {});
  void Switch(const std::string& name, bool& target, const std::string& help);
  void Option(const std::string& name, std::string& target, const std::string& help,
              bool required = false);
  // At least `least`, if given; whoever takes the number may know better.
  void Option(const std::string& name, int64_t& target, const std::string& help,
              std::optional<int64_t> least = std::nullopt);
  // Left alone unless the user gives it.
  void Option(const std::string& name, std::optional<int64_t>& target, const std::string& help);

 private:
  CLI::App& app_;
};

// All commands of the program.
class CommandSet {
 public:
  CommandSet();
  ~CommandSet();

  // A command is a struct with fields for its arguments and
  //   static constexpr const char *kName, *kSummary, *kNote;
  //   void Declare(Flags&);
  //   ExitCode Run(const Streams&) const;
  template <typename T>
  void Add() {
    auto command = std::make_shared<T>();
    CLI::App& app = AddApp(T::kName, T::kSummary, T::kNote,
                           [command](const Streams& streams) { return command->Run(streams); });
    Flags flags(app);
    command->Declare(flags);
  }

  // A command that the help lists and another program runs.
  void AddListed(const char* name, const char* summary);

  ExitCode Run(std::vector<std::string> args, const Streams& streams);

 private:
  CLI::App& AddApp(const char* name, const char* summary, const char* note,
                   std::function<ExitCode(const Streams&)> run);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace heddle
