// Measured curves: times of one kind of collective in one kind of group, by size.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/base/units.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/price/cost/comm/group.h"
#include "heddle/price/cost/comm/torch_model.h"

namespace heddle::price {

// How a curve gives times of sizes without a point.
enum class Interpolation : uint8_t {
  // Linear between points on logarithmic scales, because rates change smoothly. Constant below the
  // first point.
  kLog,
  // AutoParallel's reading of its tables: the time of the point at the size in whole MiB, rounded
  // down; linear between other points. Has jumps; only for comparisons.
  kColumns,
  // No points: PyTorch's formula, for files that were priced with it.
  kTorch,
};

struct Curve {
  struct Point {
    // Bytes that one rank passes in.
    Bytes bytes;
    Nanos time;
  };
  CollectiveKind kind = CollectiveKind::kAllGather;
  // The axes of its groups in the order of `over`, such as `dp,tp`, or any name.
  std::string over;
  int64_t ranks = 1;
  // Nodes that a group spans; 0 if unknown.
  int64_t nodes = 0;
  Interpolation interpolation = Interpolation::kLog;
  TorchNetwork network = TorchNetwork::kHopper;
  // At least two, with increasing bytes.
  std::vector<Point> points;

  // After the last point, continues along the last two.
  Nanos At(Bytes bytes) const;
};

}  // namespace heddle::price
