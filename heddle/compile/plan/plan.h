// Plan: where everything lies on a mesh, as a small text that presets write, a solver writes, or a person.
//
//   heddle plan 1
//   mesh [dp=4, tp=2]
//   input "*" [dp]
//   param "layers.*.attention.wq.weight" store [{tp,dp},-] compute [tp,-]
//   module "layers.*.attention" in [dp,-,-] out [dp,tp,-]
//   module "layers.*.moe" local [dp] experts [dp]
//   module "loss" in [dp,-,tp] why loss write-out
//   node "layers.*.feed_forward" aten.mul.Tensor fwd 0 in [dp,-,tp] [dp,-,tp] out [dp,-,tp]
//   auto
//
// A placement lists dimensions: `-` is whole, `dp` is split over that axis, `{tp,dp}` over two, the outermost first; dimensions
// that are not listed are whole. In patterns `*` matches anything within one part of a dotted name,
// `**` anything, and `{3-7}` a part that is a number from 3 to 7. Further statements are about
// decisions beyond placements (decisions.h).
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
  // Of batch tensors and buffers, by name.
  std::string pattern;
  Placement placement;
  size_t rank = 0;
  uint32_t line = 0;
};

struct PlanParam {
  std::string pattern;
  // How it is kept, and how it is when it is read.
  Placement store = {};
  Placement compute = {};
  size_t store_rank = 0;
  size_t compute_rank = 0;
  // Empty: the unit that the graph says.
  std::string unit = {};
  uint32_t line = 0;
};

// A `module` statement: what torch calls a module is a layer here, because a module is a whole text of graphs.
struct PlanLayer {
  // Of scopes. What flows into such a layer and out of it gets these placements; gradients flow back through the mirrored
  // redistributions.
  std::string pattern;
  std::optional<BoundaryPlacement> in = {};
  std::optional<BoundaryPlacement> out = {};
  // Inside, each rank works on its own part alone.
  Axes local = {};
  // Of the local axes those whose ranks share the experts: rows go to the ranks that have theirs, and come back. `expert_times`: the
  // most rows that a rank takes, in multiples of what it has itself; 0 for all that there may be.
  Axes experts = {};
  int64_t expert_times = 0;
  // The purpose of redistributions inside and at the boundary.
  Why why = Why::kTensor;
  // Log-softmax is written out in smaller ops there, so that it can be split.
  bool write_out = false;
  uint32_t line = 0;
};

// A `node` statement: how one op of a scope is split, where that should not follow from what it reads.
struct PlanNode {
  // Of scopes; empty for nodes that are in none.
  std::string pattern;
  std::string op;
  Phase phase = Phase::kForward;
  // Among the nodes of this op in its scope and phase, in order, from 0.
  int64_t number = 0;
  // An operand that is absent has no dimensions.
  std::vector<BoundaryPlacement> operands = {};
  std::vector<BoundaryPlacement> results = {};
  uint32_t line = 0;
};

struct Plan {
  Mesh mesh;
  std::vector<PlanInput> inputs;
  std::vector<PlanParam> params;
  std::vector<PlanLayer> layers;
  std::vector<PlanNode> nodes;
  // What the plan does not say is found (auto/auto_plan.h).
  bool automatic = false;
  // Gradients are summed; or averaged; or divided by `grad_divisor` and summed (grad_reduction.h).
  bool average = false;
  double grad_divisor = 1.0;
  // Gradients that are partial over an axis which does not split the batch are reduced over it before they are widened, as
  // eager does; or with the others, in the wide type.
  bool wide_tensor_grads = false;
  // Gradients are summed over the ranks that share the batch in the type they were computed in, and widened behind that; FSDP2's
  // `reduce_dtype`, where it is the narrow one.
  bool narrow_grads = false;
  // The step beyond placements: batch, recomputation, pipeline.
  PlanDecisions decisions = {};

  // The same lowered graph, with nothing decided about what follows.
  Plan UpToLowering() const;
};

// Whether gradients can be divided by it: positive, and so is its inverse.
bool IsGradDivisor(double divisor);

// Every mistake, with its position.
Result<Plan> ParsePlan(std::string_view text, std::string_view file);
std::string FormatPlan(const Plan& plan);

}  // namespace heddle::compile
