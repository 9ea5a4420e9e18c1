// The arguments of a command: their declaration, parsing and help.
//
// A flag is `--name=value`, `--name value`, `-n value` or `-nvalue`. A switch is on without a
// value, or takes `true` or `false`. Arguments after `--` are positional. An empty value is a
// value: `--name=`. Every message is written here; messages of libraries are not passed on.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "heddle/cli/flags/flag_info.h"
#include "heddle/cli/flags/job_file.h"
#include "heddle/core/base/file.h"
#include "heddle/core/base/result.h"

namespace heddle {

struct ForeignKey;

// The arguments of one command. Targets must outlive the reading; their values before it are the
// defaults, which the help shows.
class Flags {
 public:
  // The heading of the flags declared from here on.
  void Section(std::string title) { section_ = std::move(title); }
  void Positional(const std::string& name, std::string& target, std::string help,
                  std::vector<std::string> choices = {}, bool required = true);
  // One or more arguments; the last positional ones.
  void Positional(const std::string& name, std::vector<std::string>& target, std::string help) {
    Option(name, target, std::move(help));
    flags_.back().required = true;
  }
  // Names of a flag are given as `-o,--output`, or with a placeholder of its value,
  // `-o,--output=FILE`.
  // The target is a bool or std::optional<bool>.
  template <typename Target>
  void Switch(std::string_view names, Target& target, std::string help) {
    AddValue(names, target, std::move(help));
  }
  // A switch that is on by default. If it is off, Read resets `target`.
  template <typename T>
  void Enables(std::string_view names, T& target, std::string help) {
    auto on = std::make_shared<bool>(true);
    Switch(names, *on, std::move(help));
    finally_.push_back([on, &target] {
      if (!*on) target = T();
    });
  }
  // The target is a text, a whole number within `range`, a finite number that is not negative, or a
  // std::optional of them, which changes only if the user gives the flag.
  template <typename Target>
  void Option(std::string_view names, Target& target, std::string help,
              const NumberRange& range = {}) {
    AddValue(names, target, std::move(help), range);
  }
  // The user must give this flag.
  void Required(std::string_view names, std::string& target, std::string help) {
    AddValue(names, target, std::move(help)).required = true;
  }
  // A flag that may be repeated.
  void Option(std::string_view names, std::vector<std::string>& target, std::string help);
  // One of several named values. A target with another value has no default.
  template <typename T, typename Target>
  void Choice(std::string_view names, Target& target, std::string help,
              std::initializer_list<std::pair<std::string_view, T>> values) {
    std::vector<std::string> texts;
    for (const auto& [name, value] : values) texts.emplace_back(name);
    std::vector<std::pair<std::string_view, T>> all(values);
    AddChoice(
        names, std::move(help), std::move(texts),
        [&target, all](size_t i) { target = all[i].second; },
        [&target, all] {
          auto same = [&](const auto& each) { return target == each.second; };
          return static_cast<size_t>(std::ranges::find_if(all, same) - all.begin());
        });
  }
  void Choice(std::string_view names, std::string& target, std::string help,
              const std::vector<std::string>& values);

  // Marks an existing flag as a path, like flags with the placeholder FILE or FOLDER. The job that
  // Config writes has the absolute path, so that it works in any directory. Empty values and `-`
  // stay unchanged. `absolute` is for values that are not always one path.
  void Path(std::string_view name,
            std::string (*absolute)(const std::string& value) = AbsolutePath);

  // `flag` on the command line is an error unless one of `needs` (`--a,--b`) is set.
  void Requires(std::string flag, std::string needs);
  // `flag` is an error unless the flag `other` has one of `values`. A job file may state the
  // default value of `flag`.
  void RequiresValue(std::string flag, std::string other, std::vector<std::string> values);
  // Flags of `section` on the command line are errors if `flag` is set, since `reason`.
  void Excludes(std::string flag, std::string section, std::string reason);
  // Adds `--config=FILE.toml`, whose keys are the names of the flags, and `--config-show`. Flags on
  // the command line override the file. After the reading `job` holds the whole job, as TOML, with
  // the origin of each value.
  void Config(std::string& job);
  // After the reading `lines` holds a line for each flag that can be in such a file:
  // `--name=value`, or `--name is not set`.
  void Values(std::string& lines) { values_ = &lines; }
  // The lines of a job file for the flags of some sections. Flags without a value are left out.
  std::vector<JobLine> Lines(std::span<const std::string_view> sections) const;
  // The keys of all flags in a job file.
  std::set<std::string> Keys() const;
  // Keys of other commands, which a job file may have.
  void AcceptKeys(std::set<std::string> keys) { other_keys_ = std::move(keys); }
  // The job, if the user only wants to see it.
  const std::string* shown_config() const {
    return config_ && config_->show ? &config_->job : nullptr;
  }

  // Filled by Read; it outlives this.
  std::shared_ptr<const GivenFlags> given() const { return given_; }

  // Sets the targets. `command` is for the messages. Reports every mistake.
  Status Read(std::string_view command, std::span<const std::string> args);
  // ` FILE --plan TEXT [FLAGS]`: what follows the command's name.
  std::string Usage() const;
  // The headings of the flags declared so far, without that of positional arguments.
  std::vector<std::string> Sections() const;
  // All arguments, grouped by section.
  std::vector<FlagInfo> Infos() const;
  // For the docs: a table in Markdown for each section.
  std::string MarkdownTable() const;
  // After the reading, one line each: flags that have another name now, and keys of TorchTitan that
  // were ignored, and why.
  std::vector<std::string> Notes() const;

 private:
  using Getter = std::function<std::optional<JobValue>()>;
  // Sets the target. The flag as the user wrote it is for the message.
  using Setter = std::function<Status(std::string_view name, const std::string& value)>;
  struct Flag : FlagInfo {
    // The kind of value that a job file holds for it.
    JobValueKind kind = JobValueKind::kText;
    bool repeats = false;
    Setter set;
    // The value of the target; none if it says that there is none.
    Getter get;
    bool given = false;
    std::string given_as;
    // Null if the value has no path.
    std::string (*absolute)(const std::string& value) = nullptr;
    // Where the value came from: `flag`, `job.toml:3`.
    std::string origin = "default";
  };

  Flag& Add(std::string_view names, JobValueKind kind, std::string help, Setter set, Getter get);
  template <typename Target>
  Flag& AddValue(std::string_view names, Target& target, std::string help,
                 const NumberRange& range = {});
  // `set` takes a position in `texts`; `get` returns one, or their number for none of them.
  void AddChoice(std::string_view names, std::string help, std::vector<std::string> texts,
                 std::function<void(size_t)> set, std::function<size_t()> get);
  const Flag* Find(std::string_view name) const;
  Flag* Find(std::string_view name) { return const_cast<Flag*>(std::as_const(*this).Find(name)); }
  Flag* NextPositional();
  // Reads the flag at args[at] and its value, and leaves `at` at the last argument it took.
  Status ReadFlag(std::span<const std::string> args, size_t& at);
  Status ReadPositional(std::string_view command, const std::string& value);
  Status SetFlag(Flag& flag, std::string_view name, const std::string& value);
  Failure UnknownFlag(const std::string& name) const;
  Status CheckRequirements() const;
  Status CheckRequirement(const FlagRequirement& requirement) const;
  // The reason why another flag makes this one ineffective; null: none does.
  const FlagExclusion* ExclusionOf(const Flag& flag) const;
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
  // The key of a flag in a file, by one of its long names. A name in TOML is a table or a value,
  // not both: next to `--model.dim`, `--model` is `model.name`.
  std::string KeyOf(std::string_view name) const;
  std::vector<std::string> KeysOf(const Flag& flag) const;
  JobLine LineOf(const Flag& flag) const;
  std::string Job() const;
  std::string ValueLines() const;

  std::vector<Flag> flags_;
  // Set by Values.
  std::string* values_ = nullptr;
  std::string section_ = "Options";
  std::vector<FlagRequirement> requirements_;
  std::vector<FlagExclusion> exclusions_;
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
