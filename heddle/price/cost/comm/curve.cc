#include "heddle/price/cost/comm/curve.h"

#include <algorithm>

#include "heddle/price/cost/cluster/rate.h"

namespace heddle::price {
namespace {

double AlongLine(const Curve::Point& a, const Curve::Point& b, Bytes bytes) {
  auto run = static_cast<double>(b.bytes.value - a.bytes.value);
  auto rise = static_cast<double>(b.time.value - a.time.value);
  return static_cast<double>(a.time.value) +
         rise * static_cast<double>(bytes.value - a.bytes.value) / run;
}

double AlongLogLine(const Curve::Point& a, const Curve::Point& b, Bytes bytes) {
  double from = Log2(static_cast<double>(a.bytes.value));
  double to = Log2(static_cast<double>(b.bytes.value));
  double at = Log2(static_cast<double>(bytes.value));
  double low = Log2(static_cast<double>(a.time.value));
  double high = Log2(static_cast<double>(b.time.value));
  return Exp2(low + (high - low) * (at - from) / (to - from));
}

}  // namespace

Nanos Curve::At(Bytes bytes) const {
  if (interpolation == Interpolation::kTorch) return TorchTime(kind, bytes, ranks, network);
  if (bytes <= points.front().bytes) return points.front().time;
  auto after = std::ranges::upper_bound(points, bytes, {}, &Point::bytes);
  if (interpolation == Interpolation::kColumns) {
    Bytes whole{bytes.value >> 20 << 20};
    auto column = std::ranges::lower_bound(points, whole, {}, &Point::bytes);
    if (column != points.end() && column->bytes == whole) return column->time;
  }
  if (after == points.end()) {
    const Point& last = points.back();
    if (bytes == last.bytes) return last.time;
    return std::max(last.time, WholeNanos(AlongLine(points[points.size() - 2], last, bytes)));
  }
  const Point& before = *std::prev(after);
  if (bytes == before.bytes) return before.time;
  return WholeNanos(interpolation == Interpolation::kColumns ? AlongLine(before, *after, bytes)
                                                             : AlongLogLine(before, *after, bytes));
}

}  // namespace heddle::price
