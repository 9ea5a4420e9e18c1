#include "heddle/run/metrics/training_log.h"

#include <ostream>

#include "heddle/run/metrics/loss_curve.h"

namespace heddle::run {

TrainingLog::TrainingLog(const TrainingLogOptions& options, std::ostream& out, std::ostream& err)
    : options_(options),
      out_(out),
      err_(err),
      progress_(err, "step", options.steps, options.after_step) {}

Result<std::unique_ptr<TrainingLog>> TrainingLog::Open(const TrainingLogOptions& options,
                                                       std::ostream& out, std::ostream& err) {
  std::unique_ptr<TrainingLog> log(new TrainingLog(options, out, err));
  if (!options.jsonl.empty()) {
    HEDDLE_TRY(auto file, OpenJsonl(options.jsonl, options.after_step));
    log->files_.push_back(std::move(file));
  }
  if (!options.tensorboard.empty()) {
    HEDDLE_TRY(auto file, OpenTensorBoard(options.tensorboard));
    log->files_.push_back(std::move(file));
  }
  if (options.wandb) {
    HEDDLE_TRY(auto file, OpenWandb(*options.wandb, options.after_step));
    log->files_.push_back(std::move(file));
  }
  return log;
}

void TrainingLog::Add(const StepMetrics& metrics) {
  progress_.Clear();
  bool first = losses_.empty();
  losses_.push_back(metrics.loss);
  if (first || metrics.step % options_.log_every == 0 || metrics.step == options_.steps)
    out_ << StepLine(metrics, options_.color) << "\n";
  if (metrics.validation_loss) out_ << ValidationLine(metrics, options_.color) << "\n";
  for (const TextSample& sample : metrics.samples)
    out_ << SampleLine(metrics.step, sample, options_.color) << "\n";
  out_ << std::flush;
  WriteFiles([&](MetricsFile& file) { return file.Write(metrics); });
  if (metrics.step < options_.steps) progress_.Show(metrics.step);
}

void TrainingLog::WriteFiles(const std::function<Status(MetricsFile&)>& write) {
  std::erase_if(files_, [&](const std::unique_ptr<MetricsFile>& file) {
    Status written = write(*file);
    if (!written.ok())
      err_ << "training continues without this file: " << Format(written.diagnostics())
           << std::flush;
    return !written.ok();
  });
}

void TrainingLog::Close(int exit_code) {
  WriteFiles([&](MetricsFile& file) { return file.Finish(exit_code); });
}

void TrainingLog::Finish() {
  progress_.Clear();
  std::string curve = LossCurve(losses_, options_.after_step + 1);
  if (!curve.empty()) out_ << "\nloss\n" << curve << std::flush;
}

}  // namespace heddle::run
