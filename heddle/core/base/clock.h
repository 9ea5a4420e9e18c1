// Time and memory of this process, for reports. No computed result depends on them.
#pragma once

#include <chrono>

#include <sys/resource.h>

#include "heddle/core/base/units.h"

namespace heddle {

class Clock {
 public:
  Nanos Elapsed() const {
    auto elapsed = std::chrono::steady_clock::now() - start_;
    return {std::chrono::duration_cast<std::chrono::nanoseconds>(elapsed).count()};
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

inline double Seconds(Nanos nanos) { return static_cast<double>(nanos.value) * 1e-9; }
inline double Millis(Nanos nanos) { return static_cast<double>(nanos.value) / 1e6; }

// The maximum resident memory so far.
inline Bytes PeakMemory() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return KiB(usage.ru_maxrss);
}

}  // namespace heddle
