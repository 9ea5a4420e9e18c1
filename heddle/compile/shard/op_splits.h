// All ways to split one call over a mesh, from the factors of its op.
//
// Over each axis, the op splits one of its loops, passes on the pending sums of one linear group,
// or is replicated. Axes that split the same loop occur in every order. Placements follow. Ways
// without a valid placement (parts that are not contiguous in a merged dimension) are omitted, and
// so are those that leave a rank with an empty part where that is not allowed.
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

// Without duplicates. The first one is fully replicated. Fails if there are more than
// `kMostOpSplits`.
inline constexpr size_t kMostOpSplits = 100'000;
Result<std::vector<OpSplit>> SplitsOf(const Factors& factors, std::span<const Type> operands,
                                      std::span<const Type> results, const Mesh& mesh);

// One way: the axes of each factor, in order, and of each linear group.
struct AxisWays {
  std::vector<Axes> by_factor;
  std::vector<Axes> by_group;
};
std::optional<OpSplit> SplitBy(const AxisWays& ways, const Factors& factors,
                               std::span<const Type> operands, std::span<const Type> results,
                               const Mesh& mesh);

// Whether the op can be split into the parts of this factor over these axes: none is empty, or all
// have the same size, if the factor requires that.
bool AcceptsParts(const Factor& factor, const Axes& axes, const Mesh& mesh);
// Whether splitting a dimension of this size over these axes leaves no rank with an empty part.
bool LeavesNoneEmpty(int64_t size, const Axes& axes, const Mesh& mesh);

}  // namespace heddle::compile
