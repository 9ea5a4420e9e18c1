// Random training steps as captured, global and not placed, and random plans for them. A seed gives
// the same step on every machine.
#pragma once

#include <cstdint>
#include <string>

namespace heddle {

enum class NumberKind {
  // Small whole numbers, whose sums are exact in any order. On ranks, a step computes equal values.
  kWhole,
  // Real numbers. On ranks, sums round differently.
  kReal,
};

struct RandomStep {
  std::string graph;
  std::string plan;
  // The plan divides gradients by this number, or averages them over the ranks of the sum.
  double grad_divisor = 1.0;
  bool averages_grads = false;
  // The graph reads its gradients.
  bool has_optimizer = false;
};

// Forward and backward, and with real numbers sometimes an optimizer: products, sums, views,
// lookups, constants, and with whole numbers parameters in a wider type than the compute type.
// propagate may reject the plan.
RandomStep MakeRandomStep(uint32_t seed, NumberKind numbers);

}  // namespace heddle
