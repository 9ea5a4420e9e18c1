#include "heddle/run/train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace heddle::run {
namespace {

double Remaining(Decay decay, double progress) {
  switch (decay) {
    case Decay::kNone: return 1;
    case Decay::kLinear: return 1 - progress;
    case Decay::kCosine: return 0.5 * (1 + std::cos(std::numbers::pi * progress));
    case Decay::kSqrt: return 1 - std::sqrt(progress);
  }
  return 1;
}

}  // namespace

std::string_view Name(Decay decay) {
  constexpr std::string_view kNames[] = {"none", "linear", "cosine", "sqrt"};
  return kNames[static_cast<size_t>(decay)];
}

Result<Schedule> Schedule::Make(const ScheduleOptions& options) {
  auto check = [](std::string_view flag, double share) -> Status {
    if (share >= 0 && share <= 1) return Done{};
    return Error(Diag::kBadChoice, "{} is {}; it is a share, from 0 to 1", flag, share);
  };
  HEDDLE_RETURN_IF_ERROR(check("--lr_scheduler.min_lr_factor", options.min_lr_factor));
  HEDDLE_RETURN_IF_ERROR(check("--lr_scheduler.decay_ratio", options.decay_ratio));
  return Schedule(options);
}

Schedule::Schedule(const ScheduleOptions& options)
    : options_(options), warmup_(std::min(options.warmup_steps, options.steps)) {
  int64_t rest = options.steps - warmup_;
  double share = static_cast<double>(options.steps) * options.decay_ratio;
  decay_steps_ = std::min(rest, static_cast<int64_t>(std::nearbyint(share)));
  if (options.decay == Decay::kNone) decay_steps_ = 0;
  full_until_ = options.steps + 1 - decay_steps_;
}

double Schedule::At(int64_t step) const {
  if (step <= warmup_)
    return options_.lr * (static_cast<double>(step) / static_cast<double>(warmup_));
  if (step <= full_until_ || decay_steps_ == 0) return options_.lr;
  double progress = static_cast<double>(step - full_until_) / static_cast<double>(decay_steps_);
  double floor = options_.min_lr_factor;
  return options_.lr * (floor + (1 - floor) * Remaining(options_.decay, std::min(progress, 1.0)));
}

}  // namespace heddle::run
