// Policies of activation checkpointing: which values of forward are kept for backward, and which
// are recomputed.
#pragma once

#include <string_view>
#include <vector>

#include "heddle/core/analysis/blocks.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle::compile {

struct CheckpointPolicy {
  enum class Kind : uint8_t { kNone, kFull, kLayers, kSelective, kMinCut };
  Kind kind = Kind::kSelective;
  // kLayers: every n-th block is recomputed.
  int64_t layers = 1;
  // The number of blocks at the start that have their own policy.
  int64_t first_blocks = 0;
  Kind first = Kind::kNone;

  // The policy of a block; for Blocks::kNone, of nodes outside blocks.
  Kind of(int64_t block) const {
    return block != Blocks::kNone && block < first_blocks ? first : kind;
  }
  bool has(Kind which) const { return kind == which || (first_blocks > 0 && first == which); }

  // Parses `none`, `full`, `layers:2`, `selective`, `min-cut`, or `full:12,selective`, where the
  // first 12 blocks have their own policy.
  static Result<CheckpointPolicy> Parse(std::string_view text);
};

enum class BlockDecision : uint8_t { kLeave, kKeep, kRecompute };

// The decisions of `full`, `layers` and `selective`. They decide about each block separately, and
// only about values in blocks.
class BlockDecisions {
 public:
  // Both must outlive this.
  BlockDecisions(const Graph& graph, const CheckpointPolicy& policy);

  // The decision about a value of forward. Policies with min-cut use CutDecisions instead.
  BlockDecision of(ValueId v) const;
  CheckpointPolicy::Kind kind(ValueId v) const {
    return policy_.of(blocks_.of(graph_[v].producer));
  }

 private:
  void FindBlockOutputs();
  void FindSelected();
  bool EntersSmaller(NodeId node) const;

  const Graph& graph_;
  const CheckpointPolicy& policy_;
  Blocks blocks_;
  // Indexed by value: whether forward reads it in another block, or outside blocks.
  std::vector<bool> leaves_block_;
  // Indexed by node: whether `selective` keeps its results.
  std::vector<bool> selected_;
};

// Indexed by value: the decision of the minimum cut between values that forward keeps anyway and
// values that backward reads. It keeps the fewest bytes, and recomputes only ops that are one pass
// over memory: pointwise ops, casts, copies, layouts, small reductions. `weights` always exist.
std::vector<BlockDecision> CutDecisions(const Graph& graph, const Weights& weights);

}  // namespace heddle::compile
