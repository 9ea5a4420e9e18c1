// Plan: the placements of tensors on a mesh, and further decisions, as a short text. Presets,
// solvers and people write plans.
//
//   heddle plan 1
//   mesh [dp=4, tp=2]
//   input "*" [dp]
//   param "layers.*.attention.wq.weight" store [{tp,dp},-] compute [tp,-]
//   module "layers.*.attention" in [dp,-,-] out [dp,tp,-]
//   module "layers.*.moe" local [dp] experts [dp]
//   module "layers.*.attention" context [cp]
//   module "loss" in [dp,-,tp] why loss write-out
//   node "layers.*.feed_forward" aten.mul.Tensor fwd 0 in [dp,-,tp] [dp,-,tp] out [dp,-,tp]
//   auto
//
// A placement lists dimensions: `-` is not split, `dp` is split over that axis, `{tp,dp}` over two,
// the outermost first. Omitted dimensions are not split. In patterns, `*` matches anything within
// one part of a dotted name, `**` anything, and `{3-7}` a part that is a number from 3 to 7.
// Further statements are decisions beyond placements (decisions.h).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/compile/plan/decisions.h"
#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"
#include "heddle/core/ir/mesh.h"
#include "heddle/core/ir/placement.h"

namespace heddle::compile {

// A placement for tensors with exactly `rank` dimensions.
struct BoundaryPlacement {
  Placement placement;
  size_t rank = 0;
  bool operator==(const BoundaryPlacement&) const = default;
};

struct PlanInput {
  // A pattern for the names of batch tensors and buffers.
  std::string pattern;
  Placement placement;
  size_t rank = 0;
  uint32_t line = 0;
};

struct PlanParam {
  std::string pattern;
  // The placement in which it is stored, and the one in which it is read.
  Placement store = {};
  Placement compute = {};
  size_t store_rank = 0;
  size_t compute_rank = 0;
  // Empty: the unit of the graph.
  std::string unit = {};
  uint32_t line = 0;
};

// A `module` statement about scopes. The name avoids confusion with Module, a text of graphs.
struct PlanModule {
  // A pattern for scopes. Values that flow into such a scope and out of it get these placements.
  // Gradients flow back through the mirrored redistributions.
  std::string pattern;
  std::optional<BoundaryPlacement> in = {};
  std::optional<BoundaryPlacement> out = {};
  // Inside, each rank works on its own part alone.
  Axes local = {};
  // The local axes whose ranks share experts: rows move to the ranks of their experts, and return.
  // `expert_times` is the maximum number of rows that a rank accepts, in multiples of its own rows;
  // 0: all rows.
  Axes experts = {};
  int64_t expert_times = 0;
  // The axes that split sequences by position. Causal attention inside gathers keys and values over
  // them, and sums their gradients in f32. With `context_heads`, ranks exchange positions for heads
  // instead. With `context_ring`, keys and values travel around the ranks of one axis in parts.
  Axes context = {};
  bool context_heads = false;
  bool context_ring = false;
  // The purpose of redistributions inside and at the boundary.
  Why why = Why::kTensor;
  // Log-softmax is decomposed into smaller ops, so that it can be split.
  bool decomposes_log_softmax = false;
  uint32_t line = 0;
};

// A `node` statement: the split of one op, instead of the split that follows from its operands.
struct PlanNode {
  // A pattern for scopes; empty for nodes without a scope.
  std::string pattern;
  std::string op;
  Phase phase = Phase::kForward;
  // Index among the nodes of this op in its scope and phase, in order, from 0.
  int64_t number = 0;
  // An absent operand has no dimensions.
  std::vector<BoundaryPlacement> operands = {};
  std::vector<BoundaryPlacement> results = {};
  uint32_t line = 0;
};

struct Plan {
  Mesh mesh;
  std::vector<PlanInput> inputs;
  std::vector<PlanParam> params;
  std::vector<PlanModule> modules;
  std::vector<PlanNode> nodes;
  // A search decides what the plan omits (search/placement/auto_plan.h).
  bool automatic = false;
  // Gradients are summed, averaged, or divided by `grad_divisor` and summed (grad_reduction.h).
  bool average = false;
  double grad_divisor = 1.0;
  // Whether gradients that are partial over an axis that does not split the batch are reduced in
  // the wide type, with the other reductions. By default they are reduced before the cast, as in
  // eager mode.
  bool wide_tensor_grads = false;
  // Whether gradients are summed over the batch's ranks in the type in which they were computed,
  // and widened afterwards: FSDP2's `reduce_dtype` if it is the narrow type.
  bool narrow_grads = false;
  // Decisions beyond placements: batch, recomputation, pipeline.
  PlanDecisions decisions = {};

  // The plan for the same lowered graph, without later decisions.
  Plan UpToLowering() const;
};

// Whether gradients can be divided by it: it and its inverse are positive.
bool IsGradDivisor(double divisor);

// Reports every error with its position.
Result<Plan> ParsePlan(std::string_view text, std::string_view file);
std::string FormatPlan(const Plan& plan);

}  // namespace heddle::compile
