// Rates, and the time that an amount takes at one.
//
// Models compute in doubles and answer in whole nanoseconds, rounded up. Sums, products and quotients of doubles are the same on
// every machine; logarithms and powers are not, so models take those from here and not from the C library.
#pragma once

#include "heddle/core/base/units.h"

namespace heddle::price {

// 1 GB/s is one byte in a nanosecond.
struct ByteRate {
  double per_nano = 0;
};
// 1 TFLOP/s is a thousand operations in a nanosecond.
struct FlopRate {
  double per_nano = 0;
};

// No single kernel or collective takes longer than this, about twenty hours: sums of times stay far from the limits of 64 bits.
inline constexpr Nanos kLongest{int64_t{1} << 46};

// Rounded up, and held between nothing and kLongest.
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
