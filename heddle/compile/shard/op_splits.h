// Every way in which one call can be split over a mesh, from the factors of its op.
//
// Over each axis the op splits one of its loops, passes the pending sums of one linear group on, or works replicated. Axes that
// split one loop stand in every order. Placements follow; ways that no placement can say (parts that lie apart inside of a merged
// dimension) are left out, and so are those that leave a rank without a part where none may be.
#pragma once

#include <span>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/factors.h"
#include "heddle/core/ir/mesh.h"
#include "heddle/core/ir/placement.h"

namespace heddle::compile {

struct OpSplit {
  std::vector<Placement> operands;
  std::vector<Placement> results;
  bool operator==(const OpSplit&) const = default;
};

// Without repetition; the first is the one in which everything is whole. Fails where there are more than `kMostOpSplits`.
inline constexpr size_t kMostOpSplits = 100'000;
Result<std::vector<OpSplit>> SplitsOf(const Factors& factors, std::span<const Type> operands,
                                      std::span<const Type> results, const Mesh& mesh);

// The placements of one way: axes by factor, in their order, and by linear group. Nothing where there is none.
struct AxisWays {
  std::vector<Axes> by_factor;
  std::vector<Axes> by_group;
};
std::optional<OpSplit> SplitBy(const AxisWays& ways, const Factors& factors,
                               std::span<const Type> operands, std::span<const Type> results,
                               const Mesh& mesh);

// Whether splitting a dimension of this size over these axes gives every rank a part.
bool LeavesNoneEmpty(int64_t size, const Axes& axes, const Mesh& mesh);

}  // namespace heddle::compile
