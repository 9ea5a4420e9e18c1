// BackwardCopies: copies of forward nodes, made where backward first needs their results.
//
// `reshard-after-forward` gathers weights again with it; `rematerialize` recomputes activations.
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
  // Whether backward makes a value of forward again, instead of reading it.
  using IsMadeAgain = std::function<Result<bool>(ValueId)>;

  // Both outlive this. `again` is asked once for each value.
  BackwardCopies(Graph& graph, Rewriter& rewriter, IsMadeAgain again);

  // Copies the nodes that make `v` and have no copy yet before `node`. A wait is copied with its
  // launch. Returns none, or the update before `node` that has taken over a storage that
  // these nodes read: then there are no copies.
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
  // By node of forward: its copy.
  std::vector<NodeId> copy_of_;
  std::vector<State> state_;
  std::unordered_map<uint32_t, ValueId> replaced_;
  std::vector<std::pair<NodeId, NodeId>> copies_;
};

}  // namespace heddle::compile
