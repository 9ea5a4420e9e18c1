// How a tensor gets from one placement to another: by the fewest collectives, and among these by the fewest elements moved.
//
// A step changes what some axes do to the tensor:
//   all-gather      split to replicated
//   all-reduce      partial to replicated
//   reduce-scatter  partial to split
//   all-to-all      split along one dimension to split along another
//   slice           replicated to split; nothing is sent
// One step may work on several axes, if they are the innermost axes of a dimension, in their order.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/mesh.h"
#include "heddle/core/ir/placement.h"
#include "heddle/core/ir/type.h"
#include "heddle/core/ops/collectives.h"

namespace heddle::compile {

struct RedistributionStep {
  // None: every rank slices its part or, if it `forgets`, all ranks but the first replace a number
  // or vector that they all have by zeros. That makes it a pending sum.
  std::optional<CollectiveKind> kind = {};
  bool forgets = false;
  Axes over = {};
  // The dimension that is cut, gathered or scattered; of an all-to-all, the one that is split.
  size_t dim = 0;
  // Of an all-to-all: the dimension that is put together.
  size_t concat_dim = 0;
  // Of the reducing ones.
  ReduceOp op = ReduceOp::kSum;
  // The placement after the step.
  Placement to = {};

  bool operator==(const RedistributionStep&) const = default;
};

enum class ReduceOrder : uint8_t {
  // The fewest collectives. A sum that is pending over two axes and ends split over one of them is all-reduced over both.
  kFewest,
  // FSDP2's order: scatter over the axes that end split, then all-reduce the small parts over the others.
  kScatterFirst,
  // DTensor's order: all-reduce whole tensors over the axes that end replicated, then scatter.
  kReduceFirst,
};

// Fails where no steps lead there. Only numbers and vectors that are whole can become partial.
Result<std::vector<RedistributionStep>> PlanRedistribution(
    const Placement& from, const Placement& to, const Dims& dims, const Mesh& mesh,
    ReduceOrder order = ReduceOrder::kFewest);

// The single step from one placement to the other, if there is one. `localize` asks for it and not for the best plan: two steps may
// be cheaper for this stretch alone, but the stretch is part of a way that was planned as a whole.
std::optional<RedistributionStep> OneStep(const Placement& from, const Placement& to,
                                          const Dims& dims, const Mesh& mesh);

// What a redistribution costs, before anything is known of time: what a search has to make small, in this order.
struct RedistributionPrice {
  int collectives = 0;
  // Elements that one rank sends.
  int64_t moved = 0;
  int steps = 0;
  auto operator<=>(const RedistributionPrice&) const = default;
};
RedistributionPrice PriceOf(const Placement& from, std::span<const RedistributionStep> steps,
                            const Dims& dims, const Mesh& mesh);

// The type of one rank's part. Where the axes do not divide, it has symbols of `types`, which the whole type's are of, too.
TypeId LocalType(const Type& whole, const Placement& placement, const Mesh& mesh, TypeTable& types);
// Elements of one rank's part, the largest.
int64_t LocalElements(const Dims& dims, const Placement& placement, const Mesh& mesh);

}  // namespace heddle::compile
