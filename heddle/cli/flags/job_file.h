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
  // As it would stand on a command line; `true` and `false`. One, but for kTexts.
  std::vector<std::string> texts;
};

struct JobEntry {
  // Tables and key with dots between them.
  std::string key;
  JobValue value;
  // Where the key stands, in bytes.
  size_t offset = 0;
  size_t width = 0;
};

// Every value of the file, in the order of the text. `name` is for messages.
Result<std::vector<JobEntry>> ParseJob(std::string_view name, std::string_view text);

struct JobLine {
  std::string key;
  // None: not set; the line is a comment.
  std::optional<JobValue> value;
  // Where the value came from.
  std::string origin;
};
// Reads back as the same entries. Keys without a table come first; tables as they first appear.
std::string FormatJob(const std::vector<JobLine>& lines);

}  // namespace heddle
