// Every way of splitting one call over a mesh that its factors allow, and what each asks of operands and makes of results.
//
// Worked out anew from the meaning of factors, not with the code under test.
#pragma once

#include <string>
#include <vector>

#include "heddle/compile/shard/op_splits.h"
#include "heddle/core/ir/mesh.h"
#include "test/parallel/op_call.h"

namespace heddle {

// Axes that split a loop of the op, or over which the operands of a linear group are pending sums.
struct CallSplit {
  std::vector<Axes> by_factor;
  std::vector<Axes> by_group;

  bool has_sums() const;
};

// One loop or group over each axis and over each ordered pair of axes, and two of them over two axes.
std::vector<CallSplit> CallSplits(const OpCall& call, const Mesh& mesh);

// Nothing where a placement cannot say it: parts that lie apart inside of a merged dimension, or an empty part of a loop that
// must have none.
std::optional<compile::OpSplit> PlacementsOf(const OpCall& call, const CallSplit& split,
                                             const Mesh& mesh);

// What a split is like, for the counts.
struct SplitTraits {
  // Some part is shorter than others; some part is empty.
  bool uneven = false;
  bool empty = false;
  // Every loop that is split has a loop of an operand, so that operands alone suggest the split.
  bool suggested = true;
  // All results are put together from parts, without arithmetic.
  bool kept = true;
};
SplitTraits TraitsOf(const OpCall& call, const CallSplit& split, const Mesh& mesh);

std::string Describe(const OpCall& call, const CallSplit& split, const Mesh& mesh);

}  // namespace heddle
