// What a rank does where ranks share experts: for localize.
//
//   %n = shard.expert_counts(%c, over=[ep])          becomes an all-to-all of counts, and its wait
//   %e = shard.expert_ends(%n, %w, over=[ep])        becomes the cumulative sum of what comes for each expert of this rank
//   %d = shard.dispatch(%x, %c, %n, ...)             becomes comm.dispatch and its wait; shard.combine likewise
//
// How many rows a rank gets is a symbol, unless buffers of the most that may come are asked for. It is followed through what works on
// these rows.
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
  // Types of values are local already.
  Status Lower(NodeId node);
  // Works the types of a node out anew if it reads rows whose number is a symbol.
  Status Follow(NodeId node);

 private:
  void LowerCounts(NodeId node);
  Status LowerEnds(NodeId node);
  void LowerExchange(NodeId node);
  void Launch(NodeId node, OpId op, const std::vector<ValueId>& operands, const Attrs& attrs);
  // The symbol of the rows of one mixture, by the counts that it receives.
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
