// The time of one kernel on a device, from the facts of its op: the higher of two roofs, arithmetic and memory, and a launch.
#pragma once

#include <span>

#include "heddle/core/ops/families.h"
#include "heddle/price/cost/cluster/cluster.h"

namespace heddle::price {

// Nothing for an op that does no work: a view, a wait, an empty tensor.
Nanos KernelTime(const Device& device, const OpArgs& args, const Types& results);

// Streaming so many bytes, as a copy does: they are read once and written once, so a copy of n bytes streams 2 n. With launch.
Nanos StreamTime(const Device& device, Bytes bytes);

// One kernel that does `flops` of plain arithmetic on bytes that it reads and writes. With launch.
Nanos PlainTime(const Device& device, const Work& work);

// Time of matrix work at the device's peak for the element type, with nothing lost.
Nanos IdealTime(const Device& device, const OpArgs& args, Flops flops);

// A matrix product as the models see it: `batch` products of [rows, depth] and [depth, columns].
struct ProductShape {
  double batch = 1;
  double rows = 1;
  double columns = 1;
  double depth = 1;
};
// From the op's factors; nothing for a call that is not a product of two tensors.
std::optional<ProductShape> ShapeOfProduct(const OpArgs& args, const Types& results);

}  // namespace heddle::price
