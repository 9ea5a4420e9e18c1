// Rewriter: a batch of edits to one graph, applied by one Commit.
//
// Until the commit, ids of the graph stay valid and new nodes get ids behind them. Commit drops what was erased, puts the
// rest in its new order and renumbers: all ids held from before are void then, and names are what carries over.
// A rewriter that made edits must be committed.
#pragma once

#include <span>
#include <vector>

#include "heddle/base/result.h"
#include "heddle/ir/graph.h"

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

  // New nodes. The anchor may itself be new or moved. Result names are made fresh where they are taken.
  NodeId InsertBefore(NodeId anchor, const NodeSpec& spec);
  NodeId InsertAfter(NodeId anchor, const NodeSpec& spec);
  NodeId InsertFirst(const NodeSpec& spec);
  NodeId InsertLast(const NodeSpec& spec);
  // A new input, behind the present ones.
  ValueId AddInput(Input input, TypeId type, std::string_view name,
                   PlacementId placement = PlacementTable::kReplicated);

  void MoveBefore(NodeId node, NodeId anchor);
  void MoveAfter(NodeId node, NodeId anchor);
  // All nodes of the graph, new ones included, in a new order.
  void Reorder(std::span<const NodeId> order);
  void Erase(NodeId node);
  bool erased(NodeId node) const { return node.index() < erased_.size() && erased_[node.index()]; }

  // Every use of `from`, outputs included, becomes a use of `to`. Later replacements of `to` carry over.
  void ReplaceValue(ValueId from, ValueId to);
  // What `value` stands for after the replacements made so far.
  ValueId Resolve(ValueId value) const;

  void SetOperand(NodeId node, size_t i, ValueId value);
  // New operands and attributes together, because attributes hold the lengths of tensor lists.
  void SetOperands(NodeId node, std::span<const ValueId> operands, AttrsId attrs);
  void SetOp(NodeId node, OpId op, AttrsId attrs);
  void SetAttrs(NodeId node, AttrsId attrs);
  void SetScope(NodeId node, ScopeId scope);
  void SetPhase(NodeId node, Phase phase);
  void SetStream(NodeId node, uint8_t stream);
  void SetType(ValueId value, TypeId type, PlacementId placement = PlacementTable::kReplicated);
  void SetKeep(ValueId value, Keep keep);
  void SetOutput(size_t output, ValueId value);
  // Drops an input that has no uses left.
  void EraseInput(size_t input);
  void EraseOutput(size_t output);

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
  NodeId Add(const NodeSpec& spec);
  void Link(uint32_t node, uint32_t after);
  void Unlink(uint32_t node);
  void CheckNodeId(NodeId node) const;
  std::vector<NodeId> NewOrder() const;
  void Rebuild(const std::vector<NodeId>& order);

  Graph& graph_;
  // Known to the graph, so that it gives no revision amid edits.
  bool& edited_;
  // The schedule as a ring of node numbers; the last slot is the head.
  std::vector<uint32_t> next_;
  std::vector<uint32_t> previous_;
  std::vector<bool> erased_;
  std::vector<bool> input_erased_;
  std::vector<bool> output_erased_;
  // Indexed by value; a value that is not replaced maps to itself.
  mutable std::vector<ValueId> replacement_;
};

}  // namespace heddle
