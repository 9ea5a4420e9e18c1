// The learning rate of every step: it rises during warm-up, stays, and decays.
//
// Steps count from 1. Warm-up reaches the full rate with its last step. Decay takes the last part of the run, and would reach its
// least rate one step behind the end, so that no step is trained with nothing. That is TorchTitan's schedule.
#pragma once

#include <cstdint>
#include <string_view>

#include "heddle/core/base/result.h"

namespace heddle::run {

enum class Decay : uint8_t { kNone, kLinear, kCosine, kSqrt };
// `none`, `linear`, `cosine`, `sqrt`
std::string_view Name(Decay decay);

struct ScheduleOptions {
  // Of the run.
  int64_t steps = 1;
  double lr = 0;
  int64_t warmup_steps = 0;
  Decay decay = Decay::kNone;
  // The share of steps that decay, all behind warm-up at most.
  double decay_ratio = 1;
  // The least rate, as a share of the full one.
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
  // Steps before decay begins.
  int64_t full_until_;
};

}  // namespace heddle::run
