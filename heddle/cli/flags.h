// What a command takes from the command line, and how it is read.
//
// A flag is `--name=value`, `--name value`, `-n value` or `-nvalue`; a switch is on without a value, or `true` or `false`. What follows `--` is no flag. An empty
// value is a value: `--name=`. All words that users read are ours.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/base/result.h"
#include "heddle/job/job_file.h"

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
  // Accepts `old` in place of `name`, a flag added before. The help does not list `old`; using it
  // leaves a hint.
  void AcceptOld(std::string_view old, std::string_view name);
  // For the user, after the reading: which flags have another name now.
  const std::vector<std::string>& hints() const { return hints_; }

  // Adds `--config=FILE.toml`, whose keys are the names of the flags, and `--config-show`. What stands on the command line wins over
  // the file. After the reading `job` holds the whole job, as TOML, with where each value came from.
  void Config(std::string& job);
  // The job, if the user wants to see it and no more.
  const std::string* shown_config() const {
    return config_ && config_->show ? &config_->job : nullptr;
  }

  // Sets the targets. `command` is for the messages. Reports every mistake.
  Status Read(std::string_view command, std::span<const std::string> args);
  // ` FILE --plan TEXT [FLAGS]`: what follows the command's name.
  std::string Usage() const;
  // For the help: each argument as it is written, and its meaning.
  std::vector<std::pair<std::string, std::string>> Meanings() const;
  // For the docs: a table in Markdown.
  std::string MarkdownTable() const;

 private:
  using Getter = std::function<std::optional<JobValue>()>;
  // Sets the target. The flag as the user wrote it is for the message.
  using Setter = std::function<Status(std::string_view name, const std::string& value)>;
  struct Flag {
    // With their dashes; one without for a positional argument.
    std::vector<std::string> names;
    // Other spellings, from AcceptOld.
    std::vector<std::string> old_names = {};
    // What the value is called; empty for a switch.
    std::string value;
    std::string help;
    bool required = false;
    bool repeats = false;
    Setter set;
    // The value of the target; none if it says that there is none.
    Getter get;
    bool given = false;
    // Where the value came from: `flag`, `job.toml:3`.
    std::string origin = "default";
  };

  Flag& Add(std::string_view names, std::string_view value, std::string help, Setter set,
            Getter get);
  Flag* Find(std::string_view name);
  Flag* NextPositional();
  // Reads the flag at args[at] and its value, and leaves `at` at the last argument it took.
  Status ReadFlag(std::span<const std::string> args, size_t& at);
  Status ReadPositional(std::string_view command, const std::string& value);
  // --- flags_config.cc
  // What the file of `--config` says, where the command line does not.
  Status ReadConfig();
  Status SetFromConfig(Flag& flag, const JobEntry& entry, std::string_view origin);
  // The key of a flag in a file, by one of its long names. TOML has no table and value of one name: next to `--model.dim`, `--model` is
  // `model.name`.
  std::string KeyOf(std::string_view name) const;
  std::vector<std::string> KeysOf(const Flag& flag) const;
  std::string Job() const;

  std::vector<Flag> flags_;
  std::vector<std::string> hints_;
  // Targets of flags, too, so that they stay where they are.
  struct ConfigFlags {
    std::string file;
    bool show = false;
    std::string& job;
  };
  std::unique_ptr<ConfigFlags> config_;
};

}  // namespace heddle
