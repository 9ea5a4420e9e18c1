// Writes an event file for TensorBoard, for reads_events.py to read: write_events FOLDER STEPS.
#include <cstdio>
#include <cstdlib>

#include "heddle/run/metrics/metrics_file.h"

int main(int argc, char** argv) {
  if (argc != 3) return 1;
  auto file = heddle::run::OpenTensorBoard(argv[1]);
  if (!file.ok()) {
    std::fputs(heddle::Format(file.diagnostics()).c_str(), stderr);
    return 1;
  }
  for (int64_t step = 1; step <= std::atoi(argv[2]); ++step) {
    heddle::run::StepMetrics metrics;
    metrics.step = step;
    metrics.loss = 10.0 / static_cast<double>(step);
    metrics.mfu = 0.25;
    if (step % 100 == 0) metrics.validation_loss = 2.5;
    if (step == 200) metrics.samples = {{"# Once", "upon\n*a* time"}};
    metrics.experts = {{"layers.1", {3, step}}};
    if (!(*file)->Write(metrics).ok()) return 1;
  }
  return 0;
}
