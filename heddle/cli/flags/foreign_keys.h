// Other spellings of flags, and keys and flags of TorchTitan that Heddle renames, refuses or
// ignores.
#pragma once

#include <string>
#include <string_view>

namespace heddle {

enum class ForeignAction : unsigned char {
  // Another name of a flag of Heddle.
  kAlias,
  // An error: the feature does not exist, or has another form.
  kRefused,
  // A note: the key does not change the run.
  kIgnored,
};

struct ForeignKey {
  // `section.name`; a trailing `*` matches any rest.
  std::string_view key;
  ForeignAction action;
  // kAlias: the flag without its dashes. Otherwise: the reason, a clause without a final period.
  std::string_view text;
  // Values, separated by `|`, that are accepted and have no effect: the default of TorchTitan, or
  // "the feature is off".
  std::string_view off = {};
  // kAlias: `from=to`, separated by `|`; other values stay as they are.
  std::string_view values = {};
  // kAlias: whether the user is told the flag's name.
  bool hints = false;

  bool is_alias() const { return action == ForeignAction::kAlias; }
  bool refused() const { return action == ForeignAction::kRefused; }
  // TorchTitan's type of it is bool, so as a flag it takes no separate value.
  bool is_switch() const { return IsOff("false") || IsOff("true"); }
  bool IsOff(std::string_view value) const;
  std::string Translate(std::string_view value) const;
};

// The first row that matches `key`; null: none does.
const ForeignKey* FindForeignKey(std::string_view key);

}  // namespace heddle
