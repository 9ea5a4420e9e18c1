// Pictures of pipeline schedules: text and SVG.
#pragma once

#include <span>
#include <string>

#include "heddle/price/pipeline/bounds.h"

namespace heddle {

struct TimedSchedule {
  PipelineSchedule schedule;
  price::PipelineTimes times;
  price::PipelineBounds bounds;

  // Step time over its lower bound for this memory, minus 1.
  double gap() const;
  // The most activations alive on a rank, in units of one micro-batch of a rank's share of stages.
  double most_in_flight() const;
};
TimedSchedule TimeSchedule(PipelineSchedule schedule, const price::PipelineCosts& costs);

// The nanoseconds of a unit of time, of which users give multiples. Four decimals and the equal
// parts of up to ten stages are exact.
inline constexpr int64_t kNanosPerUnit = 126'000'000;
inline double Units(Nanos time) {
  return static_cast<double>(time.value) / static_cast<double>(kNanosPerUnit);
}
// `1.4`, `33`.
std::string FormatUnits(Nanos time);

// One line per rank, at most `width` columns: each action by name if they fit, otherwise one letter
// per slice of time.
std::string FormatPicture(const TimedSchedule& timed, size_t width);

// The most actions that a picture shows.
inline constexpr int64_t kMostDrawnActions = 20000;
// All schedules on one scale of time.
std::string FormatPipelineSvg(std::span<const TimedSchedule> schedules);

}  // namespace heddle
