// Policies of activation checkpointing: which values of forward are kept for backward, and which are computed again.
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
  // So many blocks at the start have a policy of their own.
  int64_t first_blocks = 0;
  Kind first = Kind::kNone;

  // What holds for a block; for Blocks::kNone, for what is in none.
  Kind of(int64_t block) const {
    return block != Blocks::kNone && block < first_blocks ? first : kind;
  }
  bool has(Kind which) const { return kind == which || (first_blocks > 0 && first == which); }

  // `none`, `full`, `layers:2`, `selective`, `min-cut`; `full:12,selective` for 12 blocks with a policy of their own.
  static Result<CheckpointPolicy> Parse(std::string_view text);
};

enum class BlockDecision : uint8_t { kLeave, kKeep, kRecompute };

// What `full`, `layers` and `selective` decide: each block by itself, and only blocks.
class BlockDecisions {
 public:
  // All outlive this.
  BlockDecisions(const Graph& graph, const CheckpointPolicy& policy);

  // Of a value that a node of forward makes. What min-cut decides is not for this to say.
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
  // By value: another block, or what is in none, reads it in forward.
  std::vector<bool> leaves_block_;
  // By node: on the list of `selective`.
  std::vector<bool> selected_;
};

// By value: what the cheapest cut between what forward has for certain and what backward reads decides. Fewest bytes are kept, and
// nothing is recomputed but ops of one pass over memory: pointwise ops, casts, copies, layouts, small reductions. `weights` are
// always there.
std::vector<BlockDecision> CutDecisions(const Graph& graph, const Weights& weights);

}  // namespace heddle::compile
