// Every split of a call over a mesh that its factors allow, with the placements of operands and
// results.
//
// Computed from the meaning of factors, independently of the code under test.
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

// Returns the splits of one loop or group over each axis and each ordered pair of axes, and of two
// over two axes.
std::vector<CallSplit> CallSplits(const OpCall& call, const Mesh& mesh);

// Returns nullopt if a placement cannot express the split: parts that are not contiguous in a
// merged dimension, or an empty part of a loop that must not have one.
std::optional<compile::OpSplit> PlacementsOf(const OpCall& call, const CallSplit& split,
                                             const Mesh& mesh);

// Properties of a split, for the counts.
struct SplitTraits {
  // Some parts are smaller than others; some parts are empty.
  bool uneven = false;
  bool empty = false;
  // Every split loop is a loop of an operand, so that operands alone suggest the split.
  bool suggested = true;
  // All results are assembled from parts, without arithmetic.
  bool kept = true;
};
SplitTraits TraitsOf(const OpCall& call, const CallSplit& split, const Mesh& mesh);

std::string Describe(const OpCall& call, const CallSplit& split, const Mesh& mesh);

}  // namespace heddle
