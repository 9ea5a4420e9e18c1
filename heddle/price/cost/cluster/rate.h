// Rates, and the time of an amount at a rate.
//
// Models compute in doubles and return whole nanoseconds, rounded up. Sums, products and quotients
// of doubles are the same on every machine. Logarithms and powers are not, so models use the
// functions below instead of the C library.
#pragma once

#include "heddle/core/base/units.h"

namespace heddle::price {

// 1 GB/s is one byte per nanosecond.
struct ByteRate {
  double per_nano = 0;
  bool operator==(const ByteRate&) const = default;
};
// 1 TFLOP/s is a thousand operations per nanosecond.
struct FlopRate {
  double per_nano = 0;
};

// The maximum time of a kernel or collective, about twenty hours, so that sums of times fit into 64
// bits.
inline constexpr Nanos kLongest{int64_t{1} << 46};

// Rounds up, and clamps to the range from 0 to kLongest.
Nanos WholeNanos(double nanos);
inline double InNanos(Bytes bytes, ByteRate rate) {
  return static_cast<double>(bytes.value) / rate.per_nano;
}
inline double InNanos(Flops flops, FlopRate rate) {
  return static_cast<double>(flops.value) / rate.per_nano;
}

// For x > 0, exact for powers of two.
double Log2(double x);
double Exp2(double x);
inline double Pow(double x, double y) { return Exp2(y * Log2(x)); }

}  // namespace heddle::price
