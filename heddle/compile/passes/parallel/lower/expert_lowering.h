// Lowers ops of shared experts to one rank, for localize.
//
//   %n = shard.expert_counts(%c, over=[ep])     becomes an all-to-all of counts, and its wait
//   %e = shard.expert_ends(%n, %w, over=[ep])   becomes the cumulative sum of the rows received for
//                                               each expert of this rank
//   %d = shard.dispatch(%x, %c, %n, ...)        becomes comm.dispatch and its wait; likewise
//                                               shard.combine
//
// The number of rows of a rank is a symbol, unless the caller requests buffers for the worst case.
// The symbol propagates to all ops on these rows.
#pragma once

#include <map>
#include <set>

#include "heddle/core/ir/edit/rewriter.h"

namespace heddle::compile {

class ExpertLowering {
 public:
  ExpertLowering(Graph& graph, const Mesh& mesh, Rewriter& rewriter, bool exact)
      : graph_(graph), mesh_(mesh), rewriter_(rewriter), exact_(exact) {}

  static bool Lowers(OpId op);
  // Types of values must be local already.
  Status Lower(NodeId node);
  // Infers the types of a node again if it reads rows whose number is a symbol.
  Status Follow(NodeId node);

 private:
  void LowerCounts(NodeId node);
  Status LowerEnds(NodeId node);
  void LowerExchange(NodeId node);
  void Launch(NodeId node, OpId op, const std::vector<ValueId>& operands, const Attrs& attrs);
  // The symbol for the rows of one mixture, identified by its received counts.
  std::string SizeName(ValueId received);

  Graph& graph_;
  const Mesh& mesh_;
  Rewriter& rewriter_;
  bool exact_;
  std::map<ValueId, std::string> sizes_;
  // Values whose types have such a symbol.
  std::set<ValueId> counted_;
};

}  // namespace heddle::compile
