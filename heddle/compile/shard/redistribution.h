// Redistribution: plans steps from one placement to another with the fewest collectives and, among
// these, the fewest moved elements.
//
// A step changes how some axes affect the tensor:
//   all-gather      split to replicated
//   all-reduce      partial to replicated
//   reduce-scatter  partial to split
//   all-to-all      split along one dimension to split along another
//   slice           replicated to split; nothing is sent
// One step may use several axes if they are the innermost axes of a dimension, in their order.
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
  // Nullopt for a local step. Every rank slices its part or, if it `forgets`, all ranks except the
  // first replace a replicated number or vector by zeros, which makes it a pending sum.
  std::optional<CollectiveKind> kind = {};
  bool forgets = false;
  Axes over = {};
  // The dimension that is sliced, gathered or scattered; for an all-to-all, the one that is split.
  size_t dim = 0;
  // For an all-to-all: the dimension that is joined.
  size_t concat_dim = 0;
  // For reducing collectives.
  ReduceOp op = ReduceOp::kSum;
  // The placement after the step.
  Placement to = {};

  bool operator==(const RedistributionStep&) const = default;
};

enum class ReduceOrder : uint8_t {
  // The fewest collectives. A sum that is pending over two axes and ends split over one of them is
  // all-reduced over both.
  kFewest,
  // FSDP2's order: scatter over the axes that end split, then all-reduce the small parts over
  // others.
  kScatterFirst,
  // DTensor's order: all-reduce whole tensors over the axes that end replicated, then scatter.
  kReduceFirst,
};

// Fails if no steps lead to the target. Only replicated numbers and vectors can become partial.
Result<std::vector<RedistributionStep>> PlanRedistribution(
    const Placement& from, const Placement& to, const Dims& dims, const Mesh& mesh,
    ReduceOrder order = ReduceOrder::kFewest);

// The single step from one placement to the other, if there is one. `localize` uses it instead of
// the best plan: two steps may be cheaper for this part alone, but `lower` planned the whole path.
std::optional<RedistributionStep> OneStep(const Placement& from, const Placement& to,
                                          const Dims& dims, const Mesh& mesh);

// The cost of a redistribution without times. Searches minimise its fields in this order.
struct RedistributionPrice {
  int collectives = 0;
  // Elements that one rank sends.
  int64_t moved = 0;
  int steps = 0;
  auto operator<=>(const RedistributionPrice&) const = default;
};
RedistributionPrice PriceOf(const Placement& from, std::span<const RedistributionStep> steps,
                            const Dims& dims, const Mesh& mesh);

// The type of one rank's part. If the axes do not divide a size, it has symbols of `types`, to
// which the whole type's symbols must also belong.
TypeId LocalType(const Type& whole, const Placement& placement, const Mesh& mesh, TypeTable& types);
// Elements of the largest part of any rank.
int64_t LocalElements(const Dims& dims, const Placement& placement, const Mesh& mesh);

}  // namespace heddle::compile
