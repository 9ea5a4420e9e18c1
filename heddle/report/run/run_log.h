// RunLog: the metrics of a training run over its steps, as `heddle train --metrics.jsonl` writes
// them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/core/base/result.h"

namespace heddle {

// The file of metrics in a folder of checkpoints.
inline constexpr std::string_view kRunMetrics = "metrics.jsonl";

enum class RunUnit : uint8_t { kNumber, kCount, kShare, kBytes, kSeconds };
// `number`, `count`, `share`, `bytes` or `seconds`.
std::string_view Name(RunUnit unit);
std::string FormatAs(RunUnit unit, double value);

// A metric in a file.
struct RunColumn {
  // Its key in a line.
  std::string_view key;
  std::string_view title;
  RunUnit unit;
};
// All columns, in the order in which users see them.
std::span<const RunColumn> RunColumns();

// Generated text.
struct RunSample {
  int64_t step = 0;
  std::string prompt;
  std::string text;
};

struct RunLog {
  // The name of the file, without its folder.
  std::string file;
  // Ascending.
  std::vector<int64_t> steps;
  // By column and step; NaN where a step has no value. A column without any value is empty.
  std::vector<std::vector<double>> values;
  std::vector<RunSample> samples;
  // The number of a last line that a killed run has not completed, and that is left out. 0: none.
  int64_t cut_line = 0;

  // The values of a column by its key.
  const std::vector<double>& Of(std::string_view key) const;
};

// Whether the path is a folder with metrics.
bool IsRunFolder(const std::string& path);

// Reads a file, or the metrics of a folder of checkpoints. Fails for a damaged line, with its
// number.
Result<RunLog> LoadRunLog(const std::string& path);

}  // namespace heddle
