#include "heddle/price/cost/cluster/rate.h"

#include <cmath>

namespace heddle::price {
namespace {
constexpr double kLn2 = 0.6931471805599453;
constexpr double kSqrtHalf = 0.7071067811865476;
}  // namespace

Nanos WholeNanos(double nanos) {
  if (!(nanos > 0)) return {0};
  auto limit = static_cast<double>(kLongest.value);
  return nanos >= limit ? kLongest : Nanos{static_cast<int64_t>(std::ceil(nanos))};
}

// ln m = 2 artanh((m - 1) / (m + 1)), with m near 1 so that the series ends soon.
double Log2(double x) {
  int exponent = 0;
  double m = std::frexp(x, &exponent);
  if (m < kSqrtHalf) {
    m *= 2;
    --exponent;
  }
  double t = (m - 1) / (m + 1);
  double square = t * t;
  double sum = 0;
  for (int n = 25; n >= 1; n -= 2) sum = sum * square + 1.0 / n;
  return exponent + 2 * t * sum / kLn2;
}

double Exp2(double x) {
  double whole = std::floor(x);
  double y = (x - whole) * kLn2;
  double sum = 1;
  for (int n = 20; n >= 1; --n) sum = 1 + sum * y / n;
  return std::ldexp(sum, static_cast<int>(whole));
}

}  // namespace heddle::price
