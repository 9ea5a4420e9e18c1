// FlagInfo: an argument of a command, as its help describes it; and small types of Flags.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/cli/flags/job_file.h"

namespace heddle {

struct FlagInfo {
  // The section of the help that lists it.
  std::string section;
  // With dashes; a positional argument has one name without dashes.
  std::vector<std::string> names;
  // The placeholder of its value, such as FILE; empty for a switch.
  std::string value;
  std::string help;
  // The allowed values; empty: any.
  std::vector<std::string> choices;
  bool required = false;

  bool positional() const { return !names[0].starts_with('-'); }
  // `-o, --output FILE`
  std::string Title() const;
};

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

// A flag that is an error unless one of `needs` is set, or has one of `values`.
struct FlagRequirement {
  std::string flag;
  std::string needs;
  // Empty: any value that the user sets.
  std::vector<std::string> values;
  // With `values`: the default of `flag`. A job file may list every flag, so it only uses the flags
  // that have another value.
  std::optional<JobValue> usual;
};
// A flag that makes the flags of a section errors.
struct FlagExclusion {
  std::string flag;
  std::string section;
  std::string reason;
};
// A key of TorchTitan that has no effect.
struct IgnoredKey {
  // Empty for a command-line flag.
  std::string file;
  std::string key;
  std::string_view reason;
};

}  // namespace heddle
