// The time of one kernel on a device: the higher of two roofs, arithmetic and memory, and a launch.
#pragma once

#include <span>

#include "heddle/core/ops/families.h"
#include "heddle/price/cost/cluster/cluster.h"

namespace heddle::price {

// Zero for an op without work: a view, a wait, an empty tensor. `share`: what the execution reaches
// of the streaming rate of kernels without matrix work.
Nanos KernelTime(const Device& device, const OpArgs& args, const Types& results, double share = 1);

// Time to stream `bytes`, with launch. A copy of n bytes reads and writes them, so it streams 2 n.
Nanos StreamTime(const Device& device, Bytes bytes);

// Time of one kernel with `flops` of plain arithmetic on the bytes that it reads and writes, with
// launch. `share`: of the streaming rate.
Nanos PlainTime(const Device& device, const Work& work, double share = 1);

// The op of ATen whose figures price attention: those of flash attention for a part of the queries,
// and for documents.
std::string_view AttentionKernel(const Op& op);

// Time of matrix work at the device's peak for the element type.
Nanos IdealTime(const Device& device, const OpArgs& args, Flops flops);

// A matrix product: `batch` products of [rows, depth] and [depth, columns].
struct ProductShape {
  double batch = 1;
  double rows = 1;
  double columns = 1;
  double depth = 1;
};
// From the op's factors; nullopt for a call that is not a product of two tensors.
std::optional<ProductShape> ShapeOfProduct(const OpArgs& args, const Types& results);

}  // namespace heddle::price
