// The log of a training run: lines for people, files for programs.
//
// A file that cannot be written is reported once, and training goes on without it.
#pragma once

#include <iosfwd>
#include <memory>
#include <string>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/run/metrics/metrics_file.h"
#include "heddle/run/metrics/progress.h"
#include "heddle/run/metrics/step_metrics.h"

namespace heddle::run {

struct TrainingLogOptions {
  // The last step of the run.
  int64_t steps = 0;
  // The step that the run goes on from; 0: from the start.
  int64_t after_step = 0;
  // Lines are printed for every so many steps, the first and the last. Files get every step.
  int64_t log_every = 1;
  // Lines and the curve in colours.
  bool color = false;
  // A file, and a folder; none if empty.
  std::string jsonl = {};
  std::string tensorboard = {};
};

class TrainingLog {
 public:
  // Fails if a file cannot be opened: before training begins, that is a mistake to report. Lines go to `out`; progress, on a
  // terminal, and what went wrong with files to `err`. Both must outlive the log.
  static Result<std::unique_ptr<TrainingLog>> Open(const TrainingLogOptions& options,
                                                   std::ostream& out, std::ostream& err);

  void Add(const StepMetrics& metrics);
  // Draws the curve of the losses. What was cut short counts as finished.
  void Finish();

 private:
  TrainingLog(const TrainingLogOptions& options, std::ostream& out, std::ostream& err);

  TrainingLogOptions options_;
  std::ostream& out_;
  std::ostream& err_;
  Progress progress_;
  std::vector<std::unique_ptr<MetricsFile>> files_;
  std::vector<double> losses_;
};

}  // namespace heddle::run
