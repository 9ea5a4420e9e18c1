// Text and JSON of `heddle schedule`.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "heddle/report/pipeline_picture.h"

namespace heddle {

// With costs of a step, a unit of time is a millisecond. A simulated nanosecond is this many of
// kNanosPerUnit.
inline constexpr int64_t kNanosPerUnitOfStep = kNanosPerUnit / 1'000'000;

// A schedule, and the division of a model's layers among its stages, if costs are from a step.
struct ShownSchedule {
  TimedSchedule timed;
  price::PipelineCosts costs;
  // The first position of each stage (Layers); empty without a step.
  std::vector<int64_t> first_positions = {};
  // The positions of the model.
  int64_t positions = 0;

  bool of_step() const { return !first_positions.empty(); }
};

// Peak memory of activations on the rank with the most.
Bytes MostActivations(const ShownSchedule& shown);
nlohmann::ordered_json ToJson(const ShownSchedule& shown);
std::string FormatComparison(const std::vector<ShownSchedule>& schedules);
std::string FormatOne(const ShownSchedule& shown, size_t width);
// `1 micro-batch`, `8 micro-batches`.
std::string CountedMicroBatches(int64_t count);

}  // namespace heddle
