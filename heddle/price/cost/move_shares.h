// MoveShares: the exposed share of collective time, by kind of tensor.
#pragma once

namespace heddle::price {

// 1 counts the whole time of a collective; less than 1 assumes that a part overlaps with compute.
struct MoveShares {
  // Gathered parameters; reduced gradients; all other tensors.
  double gathers = 1;
  double gradients = 1;
  double tensors = 1;
  bool operator==(const MoveShares&) const = default;
};

}  // namespace heddle::price
