// When to stop and hand back the best that is known. The only thing here, and in what uses it, that depends on time.
#pragma once

#include <chrono>
#include <cmath>

namespace heddle {

class Deadline {
 public:
  Deadline() = default;
  explicit Deadline(double seconds) {
    // Longer than anyone waits: no limit, and nothing overflows.
    if (seconds < 1e8) at_ = Clock::now() + std::chrono::nanoseconds(std::llround(seconds * 1e9));
  }

  // Seconds until then; infinite if there is no limit.
  double Left() const {
    if (at_ == Clock::time_point::max()) return HUGE_VAL;
    return std::chrono::duration<double>(at_ - Clock::now()).count();
  }
  bool Passed() const { return at_ != Clock::time_point::max() && Clock::now() >= at_; }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point at_ = Clock::time_point::max();
};

}  // namespace heddle
