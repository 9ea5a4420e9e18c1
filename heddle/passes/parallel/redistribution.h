// How a tensor gets from one placement to another: the fewest collectives, then the fewest elements moved.
//
// Steps are all-gather (split to replicated), all-reduce (partial to replicated), reduce-scatter (partial to split), all-to-all
// (split of one dimension to split of another) and a local slice (replicated to split). A step may work on several axes at once,
// if they are the innermost of a dimension, in their order.
#pragma once

#include <string>
#include <vector>

#include "heddle/base/result.h"
#include "heddle/ir/mesh.h"
#include "heddle/ir/placement.h"
#include "heddle/ir/type.h"

namespace heddle {

enum class StepKind : uint8_t { kSlice, kAllGather, kReduceScatter, kAllReduce, kAllToAll };

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

  bool is_collective() const { return kind != StepKind::kSlice; }
  bool operator==(const RedistributionStep&) const = default;
};

struct RedistributionOptions {
  // Reduce what stays replicated before scattering the rest: more bytes, and the order of DTensor's planner.
  bool reduce_first = false;
};

// Fails where there is no way: nothing becomes partial.
Result<std::vector<RedistributionStep>> PlanRedistribution(
    const Placement& from, const Placement& to, const Dims& dims, const Mesh& mesh,
    const RedistributionOptions& options = {});

// Elements of one rank's part, the largest.
int64_t LocalElements(const Dims& dims, const Placement& placement, const Mesh& mesh);

// `[16{dp},8]{+tp}` without the sizes: `[dp,-]{+tp}`.
std::string FormatPlacement(const Placement& placement, size_t rank, const Mesh& mesh);

}  // namespace heddle
