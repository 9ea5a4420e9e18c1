// Placements of a graph's inputs, from a plan.
#pragma once

#include <deque>
#include <map>
#include <string>
#include <vector>

#include "heddle/compile/plan/plan.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

struct PlacedInputs {
  struct ParamPlan {
    PlacementId store;
    PlacementId compute;
    std::string unit;
  };

  // Indexed by value; only inputs are set.
  std::vector<PlacementId> placement;
  std::vector<bool> is_batch;
  // The axes that split a batch tensor.
  Axes batch_axes;
  // Keyed by parameter number. Pointers into it stay valid.
  std::map<int64_t, ParamPlan> params;

  const ParamPlan* ParamNumber(int64_t index) const { return &params.at(index); }
  const ParamPlan* Param(const Input& input) const {
    return input.role == InputRole::kParam ? ParamNumber(input.index) : nullptr;
  }
};

// Fails for a parameter that no statement matches, and for contradictory statements. Writes the
// plan's units to the graph.
Result<PlacedInputs> PlaceInputs(Graph& graph, const Plan& plan);

// Without axes of one rank, which split nothing.
Placement OnMesh(const Placement& placement, const Mesh& mesh);

}  // namespace heddle::compile
