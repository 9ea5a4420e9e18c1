// Measures the launches of a planned step on this machine's GPU.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "heddle/api/planned_step.h"
#include "heddle/core/kernel/launches.h"

namespace heddle {

// Returns microseconds per launch of `list`, which lists the graph of `step`; nullopt for a launch
// that did not run on its own. Trains for some steps on random data, with weights in GPU memory.
// Fails without a GPU, and for steps of several ranks or micro-batches. `notice` receives kernels
// that are not used.
Result<std::vector<std::optional<double>>> MeasureLaunches(
    const ModelOptions& model, const PlannedStep& step, const LaunchList& list,
    const std::function<void(const std::string&)>& notice);

}  // namespace heddle
