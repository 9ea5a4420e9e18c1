// Files of metrics, with one record per step. They are complete after every step.
#pragma once

#include <memory>
#include <string>

#include "heddle/core/base/result.h"
#include "heddle/run/metrics/step_metrics.h"

namespace heddle::run {

class MetricsFile {
 public:
  virtual ~MetricsFile() = default;
  virtual Status Write(const StepMetrics& metrics) = 0;
  // The run ends, and its process with this code. A killed run does not call it.
  virtual Status Finish(int /*exit_code*/) { return Done{}; }
};

// Opens a file with one line of JSON per step. Keeps existing lines up to step `after_step`, so
// that a resumed run produces the same file as an uninterrupted one.
Result<std::unique_ptr<MetricsFile>> OpenJsonl(const std::string& path, int64_t after_step);

// Opens a file of TensorBoard events in `folder`, with TorchTitan's names. A resumed run writes
// another file; TensorBoard shows them as one.
Result<std::unique_ptr<MetricsFile>> OpenTensorBoard(const std::string& folder);

}  // namespace heddle::run
