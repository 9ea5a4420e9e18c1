// A job as TOML: the values of flags, by key. `training.steps` is the flag `--training.steps`.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle {

enum class JobValueKind { kText, kInt, kNumber, kBool, kTexts };

struct JobValue {
  JobValueKind kind = JobValueKind::kText;
  // Texts as on a command line; bools are `true` and `false`. A single one, except for kTexts.
  std::vector<std::string> texts;
};

struct JobEntry {
  // The tables and the key, joined with dots.
  std::string key;
  JobValue value;
  // Offset of the key in bytes.
  size_t offset = 0;
  size_t width = 0;
};

// All values of the file, in text order. `name` is for messages.
Result<std::vector<JobEntry>> ParseJob(std::string_view name, std::string_view text);

struct JobLine {
  std::string key;
  // Nullopt: the flag is not set, and its line is a comment.
  std::optional<JobValue> value;
  // The origin of the value.
  std::string origin;
};
// The text parses to the same entries. Keys without a table come first, then tables in the order of
// their first keys.
std::string FormatJob(const std::vector<JobLine>& lines);

}  // namespace heddle
