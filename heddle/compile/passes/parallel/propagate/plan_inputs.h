// What a plan says about the inputs of a graph.
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

  // By value, of inputs.
  std::vector<PlacementId> placement;
  std::vector<bool> is_batch;
  // The axes that split a batch tensor.
  Axes batch_axes;
  // By the number of the parameter. Pointers into it stay valid.
  std::map<int64_t, ParamPlan> params;

  const ParamPlan* ParamNumber(int64_t index) const { return &params.at(index); }
  const ParamPlan* Param(const Input& input) const {
    return input.role == InputRole::kParam ? ParamNumber(input.index) : nullptr;
  }
};

// Fails for a parameter that no statement is about, and for statements that contradict each other. Units of the plan are written to
// the graph.
Result<PlacedInputs> PlaceInputs(Graph& graph, const Plan& plan);

// Without axes of one rank: they split nothing.
Placement OnMesh(const Placement& placement, const Mesh& mesh);

}  // namespace heddle::compile
