// Random training steps as they are captured, global and not placed, and random plans for them. A seed gives the same step
// on every machine.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

enum class NumberKind {
  // Whole numbers, so small that sums are exact in any order. Spread over ranks, a step computes equal values.
  kWhole,
  // Real numbers. Spread over ranks, sums round differently.
  kReal,
};

struct RandomStep {
  std::string graph;
  std::string plan;
  // The plan divides gradients by this number, or averages them over the ranks that hold a part of the sum.
  double grad_divisor = 1.0;
  bool averages_grads = false;
  // The graph reads its gradients.
  bool has_optimizer = false;
};

// Forward and backward, and with real numbers sometimes an optimizer: products, sums, views, lookups, constants, and with
// whole numbers parameters in a wider type than the step computes in. The plan may be one that propagate refuses.
RandomStep MakeRandomStep(uint32_t seed, NumberKind numbers);

}  // namespace heddle
