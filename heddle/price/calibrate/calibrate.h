// Calibrate: constants of a cluster from measurements.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "heddle/core/ir/graph.h"
#include "heddle/price/calibrate/measurements.h"
#include "heddle/price/cost/cost_model.h"

namespace heddle::price {

// A measured time, and its predictions before and after.
struct ClassError {
  std::string name;
  Nanos measured;
  Nanos before;
  Nanos after;
};

struct Calibration {
  // In the order of the measurements: classes of kernels, then sizes of collectives.
  std::vector<ClassError> errors;
  // Constants that would leave their range, and other remarks.
  std::vector<std::string> notes;
};

struct CalibrationInput {
  // The step that was traced; null without traces.
  const Module* module = nullptr;
  // Means over all traces.
  std::optional<TracedStep> step = {};
  std::vector<NcclTable> tables = {};
  CostOptions options = {};
  // For `sources`: files, steps and the date.
  std::string source = {};
};

// Changes `cluster`, the JSON of a cluster file called `file`. Each class of kernels scales the
// figures that price it: `sustained`, the efficiency of attention, the share of the memory rate.
// Tables scale the efficiency of protocols by their large sizes, and `base_us` by their small ones.
Result<Calibration> Calibrate(const CalibrationInput& input, const std::string& file,
                              nlohmann::ordered_json& cluster);

}  // namespace heddle::price
