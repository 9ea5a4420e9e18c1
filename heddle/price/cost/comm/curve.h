// Measured curves: times of one kind of collective in one kind of group, by size.
#pragma once

#include <string>
#include <vector>

#include "heddle/core/base/units.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/price/cost/comm/group.h"
#include "heddle/price/cost/comm/torch_model.h"

namespace heddle::price {

enum class Interpolation : uint8_t {
  // Straight lines between points on logarithmic scales: between 1 and 16 MiB, a rate changes smoothly. Level below the first point.
  kLog,
  // As AutoParallel reads its tables: whole MiB that have a point take its time, also for what is above them; straight lines
  // between others. Jumps, and is here to compare with.
  kColumns,
  // No points: PyTorch's formula, for what was priced by it.
  kTorch,
};

struct Curve {
  struct Point {
    // What one rank hands in.
    Bytes bytes;
    Nanos time;
  };
  CollectiveKind kind = CollectiveKind::kAllGather;
  // The axes of its groups as `over` lists them, `dp,tp`, or any name.
  std::string over;
  int64_t ranks = 1;
  // Nodes that a group spans; 0 where nobody noted it.
  int64_t nodes = 0;
  Interpolation interpolation = Interpolation::kLog;
  TorchNetwork network = TorchNetwork::kHopper;
  // At least two, their bytes rising.
  std::vector<Point> points;

  // Beyond the last point, on along the last two.
  Nanos At(Bytes bytes) const;
};

}  // namespace heddle::price
