// TrainingLog: prints the lines of a training run and writes its metrics to files.
//
// If a file cannot be written, the log reports it once, and training continues without it.
#pragma once

#include <functional>
#include <iosfwd>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/run/metrics/metrics_file.h"
#include "heddle/run/metrics/progress.h"
#include "heddle/run/metrics/step_metrics.h"
#include "heddle/run/metrics/wandb.h"

namespace heddle::run {

struct TrainingLogOptions {
  // The last step of the run.
  int64_t steps = 0;
  // The step that the run resumes after; 0: from the start.
  int64_t after_step = 0;
  // Prints every N-th step, the first and the last. Files contain every step.
  int64_t log_every = 1;
  // Colors the lines and the curve.
  bool color = false;
  // Path of the JSON file, and folder of TensorBoard events; empty: none.
  std::string jsonl = {};
  std::string tensorboard = {};
  // Unset: no file for Weights & Biases.
  std::optional<WandbOptions> wandb = {};
};

class TrainingLog {
 public:
  // Fails if a file cannot be opened. Prints lines to `out`; prints progress (on a terminal) and
  // errors of files to `err`. Both must outlive the log.
  static Result<std::unique_ptr<TrainingLog>> Open(const TrainingLogOptions& options,
                                                   std::ostream& out, std::ostream& err);

  void Add(const StepMetrics& metrics);
  // Draws the curve of the losses, also after an interrupted run.
  void Finish();
  // The process ends with this code.
  void Close(int exit_code);

 private:
  // Writes to all files. Drops files that cannot be written.
  void WriteFiles(const std::function<Status(MetricsFile&)>& write);
  TrainingLog(const TrainingLogOptions& options, std::ostream& out, std::ostream& err);

  TrainingLogOptions options_;
  std::ostream& out_;
  std::ostream& err_;
  Progress progress_;
  std::vector<std::unique_ptr<MetricsFile>> files_;
  std::vector<double> losses_;
};

}  // namespace heddle::run
