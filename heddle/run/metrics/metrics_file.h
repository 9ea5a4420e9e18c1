// Files that metrics go to, a record for each step, complete after every step.
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
};

// A line of JSON for each step. Lines of a file that is there stay up to step `after_step`: a run that goes on from a step leaves
// the file that the undisturbed one would.
Result<std::unique_ptr<MetricsFile>> OpenJsonl(const std::string& path, int64_t after_step);

// A file of TensorBoard's events in `folder`, with TorchTitan's names. A run that goes on makes another; TensorBoard shows them as one.
Result<std::unique_ptr<MetricsFile>> OpenTensorBoard(const std::string& folder);

}  // namespace heddle::run
