// Rewriter: a batch of edits to one graph, applied by one Commit.
//
// Edits of nodes and values can be seen in the graph at once: operands, attributes, types. Until the commit, ids stay valid,
// new nodes and values get ids behind all others, nodes stand in the graph in the order of their ids, and erased ones are
// still there; Before and Resolve answer for what the graph will be. Commit drops what was erased, puts the rest in its new
// order and renumbers. All ids held from before are void then: names are what carries over. A rewriter that made edits must
// be committed or abandoned.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "heddle/core/ir/edit/order_list.h"
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

  // Copies of `nodes`, next to the anchor in the order that the originals have. What the nodes read of each other, the copies
  // read of each other; all else is read as the originals do. Types, placements, attributes, scopes, streams and save
  // decisions follow, and so do phases unless one is given. Names are fresh ones of the originals'. Answers with the copies
  // in the order of `nodes`; their results correspond one to one. A copy of a random op draws anew.
  std::vector<NodeId> CloneBefore(NodeId anchor, std::span<const NodeId> nodes,
                                  std::optional<Phase> phase = {});
  std::vector<NodeId> CloneAfter(NodeId anchor, std::span<const NodeId> nodes,
                                 std::optional<Phase> phase = {});

  // --- Order

  // Whether node `a` runs before `b`, as things stand.
  bool Before(NodeId a, NodeId b) const { return schedule().Before(a.index(), b.index()); }
  void MoveBefore(NodeId node, NodeId anchor);
  void MoveAfter(NodeId node, NodeId anchor);
  // All nodes of the graph, new ones included, in a new order.
  void Reorder(std::span<const NodeId> order);

  // --- Nodes and values

  void Erase(NodeId node);
  bool erased(NodeId node) const { return node.index() < erased_.size() && erased_[node.index()]; }

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
  void Abandon() {
    graph_.revision_.reset();
    edited_ = false;
  }
  // Commits, or abandons if `status` is an error, and passes the error on.
  Result<Changed> Finish(Status status);

 private:
  // Edits in place never ask for it. Nodes are added by Insert alone, which asks before.
  OrderList& schedule() const {
    if (!order_) order_.emplace(graph_.node_count());
    return *order_;
  }
  // Behind none is at the start.
  NodeId Insert(NodeId behind, const NodeSpec& spec);
  NodeId NextOf(NodeId node) const { return NodeId(schedule().Next(node.index())); }
  NodeId PreviousOf(NodeId node) const { return NodeId(schedule().Previous(node.index())); }
  void CheckNodeId(NodeId node) const;
  std::vector<NodeId> InOrder(std::span<const NodeId> nodes) const;
  std::vector<NodeId> CloneBehind(NodeId behind, std::span<const NodeId> nodes,
                                  std::optional<Phase> phase);
  std::vector<NodeId> NewOrder() const;
  void Rebuild(const std::vector<NodeId>& order);

  Graph& graph_;
  // Known to the graph, so that it gives no revision amid edits.
  bool& edited_;
  // Whether nodes or values come, go or move. An edit in place leaves all numbers as they are.
  bool renumbers_ = false;
  // The schedule, once something has asked for it. Erased nodes keep their places.
  mutable std::optional<OrderList> order_;
  std::vector<bool> erased_;
  std::vector<bool> input_erased_;
  std::vector<bool> output_erased_;
  // Indexed by value; a value that is not replaced maps to itself.
  mutable std::vector<ValueId> replacement_;
};

}  // namespace heddle
