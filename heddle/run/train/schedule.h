// The learning-rate schedule: the rate rises during warm-up, stays constant, and decays.
//
// Steps count from 1. The last warm-up step has the full rate. The decay covers the last part of
// the run and reaches its minimum one step after the end, so that no step has rate 0. This is
// TorchTitan's schedule.
#pragma once

#include <cstdint>
#include <string_view>

#include "heddle/core/base/result.h"

namespace heddle::run {

enum class Decay : uint8_t { kNone, kLinear, kCosine, kSqrt };
// Returns `none`, `linear`, `cosine` or `sqrt`.
std::string_view Name(Decay decay);

struct ScheduleOptions {
  // Number of steps of the run.
  int64_t steps = 1;
  double lr = 0;
  int64_t warmup_steps = 0;
  Decay decay = Decay::kNone;
  // Share of the steps that decay; at most all steps after warm-up.
  double decay_ratio = 1;
  // The minimum rate, as a share of the full rate.
  double min_lr_factor = 0;
};

class Schedule {
 public:
  // Fails for shares outside [0, 1].
  static Result<Schedule> Make(const ScheduleOptions& options);
  double At(int64_t step) const;

 private:
  explicit Schedule(const ScheduleOptions& options);

  ScheduleOptions options_;
  int64_t warmup_;
  int64_t decay_steps_;
  // Number of steps before the decay.
  int64_t full_until_;
};

}  // namespace heddle::run
