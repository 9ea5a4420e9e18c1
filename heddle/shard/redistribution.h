// How a tensor gets from one placement to another: the fewest collectives, then the fewest elements moved.
//
// Steps are all-gather (split to replicated), all-reduce (partial to replicated), reduce-scatter (partial to split), all-to-all
// (split of one dimension to split of another) and a local slice (replicated to split). A step may work on several axes at once,
// if they are the innermost of a dimension, in their order.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "heddle/base/result.h"
#include "heddle/ir/mesh.h"
#include "heddle/ir/placement.h"
#include "heddle/ir/type.h"

namespace heddle {

enum class StepKind : uint8_t {
  kSlice,
  kAllGather,
  kReduceScatter,
  kAllReduce,
  kAllToAll,
  // All ranks but the first forget a number that they all have: it is a pending sum then. Nothing is sent.
  kForget,
};

struct RedistributionStep {
  StepKind kind = StepKind::kSlice;
  Axes over = {};
  // The dimension that is cut, gathered or scattered; of an all-to-all, the one that is split.
  size_t dim = 0;
  // Of an all-to-all: the dimension that is put together.
  size_t concat_dim = 0;
  // Of the reducing ones.
  ReduceOp op = ReduceOp::kSum;
  // The placement after the step.
  Placement to = {};

  bool is_collective() const { return kind != StepKind::kSlice && kind != StepKind::kForget; }
  bool operator==(const RedistributionStep&) const = default;
};

enum class ReduceOrder : uint8_t {
  // However it takes the fewest collectives: what is pending over two axes and ends split over one is all-reduced at once.
  kFewest,
  // Scatter over the axes that end split, then reduce the rest in small: the order of FSDP2.
  kScatterFirst,
  // Reduce in large over the axes that end replicated, then scatter: the order of DTensor.
  kReduceFirst,
};

// Fails where there is no way: nothing becomes partial, but for single numbers.
Result<std::vector<RedistributionStep>> PlanRedistribution(
    const Placement& from, const Placement& to, const Dims& dims, const Mesh& mesh,
    ReduceOrder order = ReduceOrder::kFewest);

// The step that leads from one placement to the other, if one does. Two that cost less may as well, where a plan for just this
// stretch may choose what a plan for a longer way had no reason to: what was planned is kept.
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

// Elements of one rank's part, the largest.
int64_t LocalElements(const Dims& dims, const Placement& placement, const Mesh& mesh);

}  // namespace heddle
