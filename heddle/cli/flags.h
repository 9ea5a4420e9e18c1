// What a command takes from the command line, and how it is read.
//
// A flag is `--name=value`, `--name value`, `-n value` or `-nvalue`; a switch has no value. What follows `--` is no flag. An empty
// value is a value: `--name=`. All words that users read are ours.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/base/result.h"

namespace heddle {

struct NumberRange {
  int64_t least = INT64_MIN;
  int64_t most = INT64_MAX;
};

// The arguments of one command. Targets must outlive the reading; their values before it are the defaults, which the help
// shows.
class Flags {
 public:
  void Positional(const std::string& name, std::string& target, std::string help,
                  std::vector<std::string> choices = {});
  // Names of a flag are given as `-o,--output`.
  void Switch(std::string_view names, bool& target, std::string help);
  void Option(std::string_view names, std::string& target, std::string help, bool required = false);
  // Whoever takes the number may know a narrower range.
  void Option(std::string_view names, int64_t& target, std::string help,
              const NumberRange& range = {});
  // A finite number that is not negative.
  void Option(std::string_view names, double& target, std::string help);
  // Left alone unless the user gives it.
  void Option(std::string_view names, std::optional<int64_t>& target, std::string help);
  void Option(std::string_view names, std::optional<double>& target, std::string help);
  // May be given any number of times.
  void Option(std::string_view names, std::vector<std::string>& target, std::string help);

  // Sets the targets. `command` is for the messages. Reports every mistake.
  Status Read(std::string_view command, std::span<const std::string> args);
  // ` FILE --plan TEXT [FLAGS]`: what follows the command's name.
  std::string Usage() const;
  // For the help: each argument as it is written, and its meaning.
  std::vector<std::pair<std::string, std::string>> Meanings() const;

 private:
  // Sets the target. The flag as the user wrote it is for the message.
  using Setter = std::function<Status(std::string_view name, const std::string& value)>;
  struct Flag {
    // With their dashes; one without for a positional argument.
    std::vector<std::string> names;
    // What the value is called; empty for a switch.
    std::string value;
    std::string help;
    bool required = false;
    bool repeats = false;
    Setter set;
    bool given = false;
  };

  Flag& Add(std::string_view names, std::string_view value, std::string help, Setter set);
  Flag* Find(std::string_view name);
  Flag* NextPositional();
  // Reads the flag at args[at] and its value, and leaves `at` at the last argument it took.
  Status ReadFlag(std::span<const std::string> args, size_t& at);
  Status ReadPositional(std::string_view command, const std::string& value);

  std::vector<Flag> flags_;
};

}  // namespace heddle
