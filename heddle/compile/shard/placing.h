// How one op is split, from the placements of its operands and its factors.
//
// Over each mesh axis, the op splits one of its loops, passes pending sums through, or is
// replicated. The operands suggest choices, and the choice that moves the fewest bytes wins. Ties
// go to a loop that the result keeps, then to a reduced loop, then to pending sums. The choice does
// not depend on the number of ranks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/factors.h"
#include "heddle/core/ir/mesh.h"
#include "heddle/core/ir/op.h"
#include "heddle/core/ir/placement.h"
#include "heddle/core/ir/type.h"

namespace heddle::compile {

// The state of an operand.
struct OperandState {
  const Type* type = nullptr;
  Placement placement;
  // A constant without earlier readers, which can be created with any split.
  bool is_free = false;
  // A constant zero, which can also be created as a pending sum.
  bool is_zero = false;
};

struct PlacingRequest {
  const Factors* factors = nullptr;
  std::vector<OperandState> operands;
  const Types* results = nullptr;
  // Axes over which every rank works on its own part, so that loops marked `local` may be split.
  Axes local;
  // If set: the final placement of result 0. Loops without an operand are split accordingly from
  // the start.
  const Placement* goal = nullptr;
  // If set: the required placements of the results.
  const std::vector<Placement>* wanted_results = nullptr;
};

struct NodePlacing {
  std::vector<Placement> operands;
  std::vector<Placement> results;
  // Axes of an operand that no loop of the op could use.
  Axes dropped;
};

// Fails if two operands split a contracted loop differently, or if the wanted results are
// impossible.
Result<NodePlacing> PlaceNode(const PlacingRequest& request, const Mesh& mesh);

}  // namespace heddle::compile
