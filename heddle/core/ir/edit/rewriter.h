// Rewriter: a batch of edits to one graph, applied by one Commit.
//
// Edits of operands, attributes and types are visible in the graph immediately. Until the commit,
// ids stay valid, new nodes and values get the next ids, nodes are stored in the order of their
// ids, and erased nodes remain. Resolve returns what a value will be after the commit. Commit
// removes erased nodes, applies the new order and renumbers. All earlier ids are then invalid; only
// names persist. A rewriter with edits must be committed or abandoned.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

// Whether a pass or a commit changed the graph.
enum class Changed : bool { kNo = false, kYes = true };
constexpr Changed operator|(Changed a, Changed b) {
  return a == Changed::kYes || b == Changed::kYes ? Changed::kYes : Changed::kNo;
}

class Rewriter {
 public:
  explicit Rewriter(Graph& graph);
  // Throws if a check fails and the host of this thread throws.
  ~Rewriter() noexcept(false);
  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;

  // --- New nodes. The anchor may be new or moved. Result names that are taken get a number.

  NodeId InsertBefore(NodeId anchor, const NodeSpec& spec);
  NodeId InsertAfter(NodeId anchor, const NodeSpec& spec);
  NodeId InsertFirst(const NodeSpec& spec);
  NodeId InsertLast(const NodeSpec& spec);
  // Adds an input after the existing ones.
  ValueId AddInput(Input input, TypeId type, std::string_view name,
                   PlacementId placement = PlacementTable::kReplicated);

  // A copy of `node` with the same operands. It copies types, placements, attributes, scope, stream
  // and save decisions, and the phase unless one is given. Its names are fresh names derived from
  // the original's. A copy of a random op draws again.
  NodeId CloneBefore(NodeId anchor, NodeId node, std::optional<Phase> phase = {});

  // Sets the order of all nodes of the graph, new ones included.
  void Reorder(std::span<const NodeId> order);

  // --- Nodes and values

  void Erase(NodeId node);

  // Replaces every use of `from`, outputs included, by `to`. Later replacements of `to` apply, too.
  // `to` keeps its name, and takes the stronger of the two save decisions. An input is always kept,
  // so it takes none.
  void ReplaceValue(ValueId from, ValueId to);
  // The value that replaces `value` after the replacements so far.
  ValueId Resolve(ValueId value) const;

  void SetOperand(NodeId node, size_t i, ValueId value);
  // Sets operands and attributes together, because attributes contain the lengths of tensor lists.
  void SetOperands(NodeId node, std::span<const ValueId> operands, AttrsId attrs);
  void SetOp(NodeId node, OpId op, AttrsId attrs);
  void SetAttrs(NodeId node, AttrsId attrs);
  void SetPhase(NodeId node, Phase phase);
  void SetStream(NodeId node, uint8_t stream);
  // For a value that replaces an erased one.
  void SwapNames(ValueId a, ValueId b);
  void SetType(ValueId value, TypeId type, PlacementId placement = PlacementTable::kReplicated);
  void SetKeep(ValueId value, Keep keep);
  void SetOutput(size_t output, ValueId value);
  // Removes an input without uses.
  void EraseInput(size_t input);
  void EraseOutput(size_t output);

  // --- Finishing

  // kYes if there was any edit.
  Changed Commit();
  // Replaces the commit if a pass fails midway. The graph is then invalid, and its owner discards
  // it.
  void Abandon() { edited_ = false; }
  // Commits, or abandons if `status` is an error, and passes the error on.
  Result<Changed> Finish(Status status);

 private:
  // Neighbours in the schedule. Entry n + 1 is node n; entry 0 is before the first node and after
  // the last.
  struct Links {
    uint32_t next = 0;
    uint32_t previous = 0;
  };

  void MakeSchedule();
  void Connect(uint32_t entry, uint32_t next) {
    links_[entry].next = next;
    links_[next].previous = entry;
  }
  // Inserts after `behind`; none is the start.
  NodeId Insert(NodeId behind, const NodeSpec& spec);
  NodeId PreviousOf(NodeId node) {
    MakeSchedule();
    return NodeId(links_[node.index() + 1].previous - 1);
  }
  void CheckNodeId(NodeId node) const;
  std::vector<NodeId> NewOrder();
  void Rebuild(const std::vector<NodeId>& order);

  Graph& graph_;
  // Whether there are edits to commit.
  bool edited_ = false;
  // Whether nodes or values are added, removed or moved. Edits in place keep all ids.
  bool renumbers_ = false;
  // Empty until the schedule is needed. Erased nodes keep their positions.
  std::vector<Links> links_;
  std::vector<bool> erased_;
  std::vector<bool> input_erased_;
  std::vector<bool> output_erased_;
  // Indexed by value; a value that is not replaced maps to itself.
  mutable std::vector<ValueId> replacement_;
};

}  // namespace heddle
