// The numbers of a step, under TorchTitan's names.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "heddle/run/metrics/step_metrics.h"

namespace heddle::run {

// What TensorBoard and Weights & Biases show.
std::vector<std::pair<std::string, double>> Scalars(const StepMetrics& metrics);

}  // namespace heddle::run
