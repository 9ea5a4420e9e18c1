// The arguments of a command: their declaration, parsing and help.
//
// A flag is `--name=value`, `--name value`, `-n value` or `-nvalue`. A switch is on without a value,
// or takes `true` or `false`. Arguments after `--` are positional. An empty value is a value:
// `--name=`. Every message is written here; messages of libraries are not passed on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/cli/job/job_file.h"

namespace heddle {

struct NumberRange {
  int64_t least = INT64_MIN;
  int64_t most = INT64_MAX;
};

// The flags that the user gave, on the command line or in a job file.
class GivenFlags {
 public:
  // `--name`, by any of its names.
  bool Has(std::string_view name) const { return names_.contains(name); }

 private:
  friend class Flags;
  std::set<std::string, std::less<>> names_;
};

// One argument, as the help, the man page and the completions show it.
struct FlagInfo {
  // The heading that it is listed under.
  std::string section;
  // With their dashes; one name without dashes for a positional argument.
  std::vector<std::string> names;
  // The placeholder of its value, such as FILE; empty for a switch.
  std::string value;
  std::string help;
  // The only values it takes; empty: any.
  std::vector<std::string> choices;
  bool required = false;

  bool positional() const { return !names[0].starts_with('-'); }
  // `-o, --output FILE`
  std::string Title() const;
};

struct ForeignKey;

// The arguments of one command. Targets must outlive the reading; their values before it are the
// defaults, which the help shows.
class Flags {
 public:
  // The heading of the flags declared from here on.
  void Section(std::string title) { section_ = std::move(title); }
  void Positional(const std::string& name, std::string& target, std::string help,
                  std::vector<std::string> choices = {});
  // Names of a flag are given as `-o,--output`, or with a placeholder of its value,
  // `-o,--output=FILE`.
  void Switch(std::string_view names, bool& target, std::string help);
  void Option(std::string_view names, std::string& target, std::string help, bool required = false);
  // The caller may check a narrower range.
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

  // Marks a flag, added before, as a path. The job that Config writes has the absolute path, so it
  // works from any directory. Empty values, `-` and values for which `is_path` is false stay as
  // they are.
  void Path(std::string_view name, bool (*is_path)(std::string_view value) = nullptr);

  // `flag` on the command line is an error unless one of `needs` (`--a,--b`) is set.
  void Requires(std::string flag, std::string needs);
  // Flags of `section` on the command line are errors if `flag` is set, since `reason`.
  void Excludes(std::string flag, std::string section, std::string reason);
  // Runs after all values are set.
  void Finally(std::function<void()> action) { finally_.push_back(std::move(action)); }

  // Adds `--config=FILE.toml`, whose keys are the names of the flags, and `--config-show`. Flags on
  // the command line override the file. After the reading `job` holds the whole job, as TOML, with
  // the origin of each value.
  void Config(std::string& job);
  // After the reading `lines` holds a line for each flag that can be in such a file:
  // `--name=value`, or `--name is not set`.
  void Values(std::string& lines) { values_ = &lines; }
  // The keys of all flags in a job file.
  std::set<std::string> Keys() const;
  // Keys of other commands, which a job file may have.
  void AcceptKeys(std::set<std::string> keys) { other_keys_ = std::move(keys); }
  // The job, if the user wants to see it and no more.
  const std::string* shown_config() const {
    return config_ && config_->show ? &config_->job : nullptr;
  }

  // Filled by Read; it outlives this.
  std::shared_ptr<const GivenFlags> given() const { return given_; }

  // Sets the targets. `command` is for the messages. Reports every mistake.
  Status Read(std::string_view command, std::span<const std::string> args);
  // ` FILE --plan TEXT [FLAGS]`: what follows the command's name.
  std::string Usage() const;
  // All arguments, grouped by section.
  std::vector<FlagInfo> Infos() const;
  // For the docs: a table in Markdown for each section.
  std::string MarkdownTable() const;
  // After the reading: keys of TorchTitan that were ignored, and why; one line each.
  std::vector<std::string> Notes() const;

 private:
  using Getter = std::function<std::optional<JobValue>()>;
  // Sets the target. The flag as the user wrote it is for the message.
  using Setter = std::function<Status(std::string_view name, const std::string& value)>;
  struct Flag : FlagInfo {
    // Other spellings, from AcceptOld.
    std::vector<std::string> old_names = {};
    // The kind of value that a job file holds for it.
    JobValueKind kind = JobValueKind::kText;
    bool repeats = false;
    Setter set;
    // The value of the target; none if it says that there is none.
    Getter get;
    bool given = false;
    bool is_path = false;
    bool (*names_path)(std::string_view value) = nullptr;
    // Where the value came from: `flag`, `job.toml:3`.
    std::string origin = "default";
  };

  Flag& Add(std::string_view names, JobValueKind kind, std::string help, Setter set, Getter get);
  Flag* Find(std::string_view name);
  Flag* NextPositional();
  // Reads the flag at args[at] and its value, and leaves `at` at the last argument it took.
  Status ReadFlag(std::span<const std::string> args, size_t& at);
  Status ReadPositional(std::string_view command, const std::string& value);
  Status SetFlag(Flag& flag, std::string_view name, const std::string& value);
  Failure UnknownFlag(const std::string& name) const;
  Status CheckRequirements() const;
  // Whether any of the names is set, by a flag or a job file.
  bool IsSet(std::string_view names) const;
  // --- flags_foreign.cc
  // Refuses a flag of TorchTitan that is not an alias, or notes that it is ignored.
  Status ReadForeign(const ForeignKey& foreign, std::span<const std::string> args, size_t& at);
  // Refuses `key`, or notes in `file` that it is ignored.
  Status RejectForeign(const ForeignKey& foreign, std::string_view key, const std::string& value,
                       const std::string& file);
  // --- flags_config.cc
  // Sets the values of the `--config` file that the command line leaves open.
  Status ReadConfig();
  Status SetFromConfig(Flag& flag, const JobEntry& entry, std::string_view origin);
  // The key of a flag in a file, by one of its long names. A name in TOML is a table or a value, not
  // both: next to `--model.dim`, `--model` is `model.name`.
  std::string KeyOf(std::string_view name) const;
  std::vector<std::string> KeysOf(const Flag& flag) const;
  std::string Job() const;
  std::string ValueLines() const;

  struct Requirement {
    std::string flag;
    std::string needs;
  };
  struct Exclusion {
    std::string flag;
    std::string section;
    std::string reason;
  };
  struct IgnoredKey {
    // Empty for a flag of the command line.
    std::string file;
    std::string key;
    std::string_view reason;
  };

  std::vector<Flag> flags_;
  // Set by Values.
  std::string* values_ = nullptr;
  std::string section_ = "Options";
  std::vector<Requirement> requirements_;
  std::vector<Exclusion> exclusions_;
  std::vector<std::function<void()>> finally_;
  std::vector<IgnoredKey> ignored_;
  std::shared_ptr<GivenFlags> given_ = std::make_shared<GivenFlags>();
  std::set<std::string> other_keys_;
  std::vector<std::string> hints_;
  // On the heap, since they are targets of flags and must not move.
  struct ConfigFlags {
    std::string file;
    bool show = false;
    std::string& job;
  };
  std::unique_ptr<ConfigFlags> config_;
};

}  // namespace heddle
