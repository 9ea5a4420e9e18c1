// Rewriter: a batch of edits to one graph, applied by one Commit.
//
// Edits of nodes and values can be seen in the graph at once: operands, attributes, types. Until the commit, ids stay valid,
// new nodes and values get ids behind all others, nodes stand in the graph in the order of their ids, and erased ones are
// still there; Resolve answers for what the graph will be. Commit drops what was erased, puts the rest in its new
// order and renumbers. All ids held from before are void then: names are what carries over. A rewriter that made edits must
// be committed or abandoned.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "heddle/core/base/result.h"
#include "heddle/core/ir/graph.h"

namespace heddle {

enum class Changed : bool { kNo = false, kYes = true };
constexpr Changed operator|(Changed a, Changed b) {
  return a == Changed::kYes || b == Changed::kYes ? Changed::kYes : Changed::kNo;
}

class Rewriter {
 public:
  explicit Rewriter(Graph& graph);
  ~Rewriter();
  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;

  // --- New nodes. The anchor may itself be new or moved. Result names are made fresh where they are taken.

  NodeId InsertBefore(NodeId anchor, const NodeSpec& spec);
  NodeId InsertAfter(NodeId anchor, const NodeSpec& spec);
  NodeId InsertFirst(const NodeSpec& spec);
  NodeId InsertLast(const NodeSpec& spec);
  // A new input, behind the present ones.
  ValueId AddInput(Input input, TypeId type, std::string_view name,
                   PlacementId placement = PlacementTable::kReplicated);

  // A copy of `node` that reads what the original reads. Types, placements, attributes, scope, stream and save decisions follow,
  // and so does the phase unless one is given. Names are fresh ones of the original's. A copy of a random op draws again.
  NodeId CloneBefore(NodeId anchor, NodeId node, std::optional<Phase> phase = {});

  // All nodes of the graph, new ones included, in a new order.
  void Reorder(std::span<const NodeId> order);

  // --- Nodes and values

  void Erase(NodeId node);

  // Every use of `from`, outputs included, becomes a use of `to`. Later replacements of `to` carry over. `to` keeps its name,
  // and the stronger of the two save decisions; an input is always kept, so it takes none.
  void ReplaceValue(ValueId from, ValueId to);
  // What `value` stands for after the replacements made so far.
  ValueId Resolve(ValueId value) const;

  void SetOperand(NodeId node, size_t i, ValueId value);
  // New operands and attributes together, because attributes hold the lengths of tensor lists.
  void SetOperands(NodeId node, std::span<const ValueId> operands, AttrsId attrs);
  void SetOp(NodeId node, OpId op, AttrsId attrs);
  void SetAttrs(NodeId node, AttrsId attrs);
  void SetPhase(NodeId node, Phase phase);
  void SetStream(NodeId node, uint8_t stream);
  // For a value that stands for one that is gone.
  void SwapNames(ValueId a, ValueId b);
  void SetType(ValueId value, TypeId type, PlacementId placement = PlacementTable::kReplicated);
  void SetKeep(ValueId value, Keep keep);
  void SetOutput(size_t output, ValueId value);
  // Drops an input that has no uses left.
  void EraseInput(size_t input);
  void EraseOutput(size_t output);

  // --- The end

  // kYes if there was any edit.
  Changed Commit();
  // Instead of a commit, where a pass fails half way: the graph is of no use any more, and its owner drops it.
  void Abandon() { edited_ = false; }
  // Commits, or abandons if `status` is an error, and passes the error on.
  Result<Changed> Finish(Status status);

 private:
  // Neighbours in the schedule. Entry n + 1 is node n; entry 0 joins the last node and the first.
  struct Links {
    uint32_t next = 0;
    uint32_t previous = 0;
  };

  void MakeSchedule();
  void Connect(uint32_t entry, uint32_t next) {
    links_[entry].next = next;
    links_[next].previous = entry;
  }
  // Behind none is at the start.
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
  // Whether nodes or values come, go or move. An edit in place leaves all numbers as they are.
  bool renumbers_ = false;
  // Empty until something asks for the schedule. Erased nodes keep their places.
  std::vector<Links> links_;
  std::vector<bool> erased_;
  std::vector<bool> input_erased_;
  std::vector<bool> output_erased_;
  // Indexed by value; a value that is not replaced maps to itself.
  mutable std::vector<ValueId> replacement_;
};

}  // namespace heddle
