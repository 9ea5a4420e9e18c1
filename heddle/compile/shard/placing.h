// How one op is split, and what that asks of its operands and makes of its results. All from the op's factors.
//
// Over each mesh axis the op splits one of its loops, passes pending sums through, or works replicated. The operands suggest
// ways; the one that moves the fewest bytes wins. A tie goes to a loop that the result keeps, then to one that is reduced,
// then to pending sums. Nothing depends on the number of ranks.
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

// What an operand brings.
struct OperandState {
  const Type* type = nullptr;
  Placement placement;
  // A constant that nothing has read yet: it can be made in any split.
  bool is_free = false;
  // A constant zero: it can also be made as a pending sum.
  bool is_zero = false;
};

struct PlacingRequest {
  const Factors* factors = nullptr;
  std::vector<OperandState> operands;
  const Types* results = nullptr;
  // Axes over which every rank works on its own part, and loops marked `local` may be split.
  Axes local;
  // If set: where result 0 will end. Loops that no operand has are split so from the start.
  const Placement* goal = nullptr;
  // If set: the placements that the results must get.
  const std::vector<Placement>* wanted_results = nullptr;
};

struct NodePlacing {
  std::vector<Placement> operands;
  std::vector<Placement> results;
  // Axes that an operand is split over, and that no loop of the op could take.
  Axes dropped;
};

// Fails where two operands split a contracted loop differently, or where the wanted results cannot be had.
Result<NodePlacing> PlaceNode(const PlacingRequest& request, const Mesh& mesh);

}  // namespace heddle::compile
