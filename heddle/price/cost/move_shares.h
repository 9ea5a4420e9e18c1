// MoveShares: how much of the time of collectives a step waits for.
#pragma once

namespace heddle::price {

// 1 counts the whole time of a collective; less than 1, if part of it overlaps with compute.
struct MoveShares {
  // Gathered parameters; reduced gradients; all other tensors.
  double gathers = 1;
  double gradients = 1;
  double tensors = 1;
  bool operator==(const MoveShares&) const = default;
};

}  // namespace heddle::price
