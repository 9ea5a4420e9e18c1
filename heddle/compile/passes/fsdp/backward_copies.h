// BackwardCopies: copies forward nodes to where backward first needs their results.
//
// `reshard-after-forward` uses it to gather weights again, and `rematerialize` to recompute
// activations.
#pragma once

#include <functional>
#include <unordered_map>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/edit/rewriter.h"
#include "heddle/core/ir/storage.h"

namespace heddle::compile {

class BackwardCopies {
 public:
  // Whether backward recomputes a value of forward instead of reading it.
  using IsMadeAgain = std::function<Result<bool>(ValueId)>;

  // Both must outlive this. `again` is called once for each value.
  BackwardCopies(Graph& graph, Rewriter& rewriter, IsMadeAgain again);

  // Copies the nodes that produce `v`, unless they have copies, to before `node`. A wait is copied
  // with its launch. If an update before `node` has taken over a storage that these nodes read,
  // makes no copies and returns the update. Otherwise returns none.
  Result<NodeId> CopyBefore(NodeId node, ValueId v);
  // The value that backward reads instead of `v`.
  ValueId Here(ValueId v) const;
  // Backward reads `v` itself, or `other`.
  void Keep(ValueId v) { state_[v.index()] = State::kKept; }
  void Replace(ValueId v, ValueId other) { replaced_[v.index()] = other; }
  // Pairs of originals and copies since the last call.
  std::vector<std::pair<NodeId, NodeId>> TakeCopies() { return std::exchange(copies_, {}); }

 private:
  enum class State : uint8_t { kUnknown, kKept, kAgain };

  Result<bool> Again(ValueId v);
  Result<std::vector<NodeId>> Missing(ValueId v);
  NodeId TakenBefore(const std::vector<NodeId>& nodes, NodeId node) const;
  ValueId ResultOfCopy(ValueId v) const;

  Graph& graph_;
  Rewriter& rewriter_;
  IsMadeAgain again_;
  BufferDonations donations_;
  // Indexed by node of forward: its copy.
  std::vector<NodeId> copy_of_;
  std::vector<State> state_;
  std::unordered_map<uint32_t, ValueId> replaced_;
  std::vector<std::pair<NodeId, NodeId>> copies_;
};

}  // namespace heddle::compile
