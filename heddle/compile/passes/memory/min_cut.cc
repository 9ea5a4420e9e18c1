// Minimum cut: chooses the values to keep such that backward can recompute the others with
// inexpensive ops.
//
// The network has two vertices for each value that backward reads, or needs for recomputation. The
// edge between them costs the bytes of the value. Values that cannot be recomputed are connected to
// the source; values that backward reads, to the sink. A value that exists anyway has no vertices,
// so values derived from it alone are free.
#include <algorithm>

#include "heddle/compile/passes/memory/policy.h"
#include "heddle/compile/passes/memory/recompute.h"
#include "heddle/core/analysis/max_flow.h"
#include "heddle/core/ops/families.h"

namespace heddle::compile {
namespace {

class Cutter {
 public:
  Cutter(const Graph& graph, const Weights& weights)
      : graph_(graph),
        weights_(weights),
        in_(graph.value_count()),
        out_(graph.value_count()),
        source_(flow_.AddNode()),
        sink_(flow_.AddNode()) {}

  std::vector<BlockDecision> Run() {
    for (NodeId node : graph_.nodes()) {
      for (ValueId v : graph_.operands(node)) {
        if (!Crosses(graph_, node, v)) continue;
        bool is_new = !in_[v.index()];
        if (is_new && Reach(v)) flow_.AddEdge(out_[v.index()], sink_, MaxFlow::kInfinite);
      }
    }
    Grow();
    // The cut nearest to the sink: among cuts that keep the same bytes, the one that recomputes
    // least. Without a finite cut, everything that may be recomputed is.
    flow_.Solve(source_, sink_);
    std::vector<BlockDecision> decisions(graph_.value_count(), BlockDecision::kLeave);
    for (ValueId v : graph_.values()) {
      FlowNodeId in = in_[v.index()];
      if (!in) continue;
      if (flow_.OnSinkSide(in)) {
        decisions[v.index()] = BlockDecision::kRecompute;
      } else if (flow_.OnSinkSide(out_[v.index()])) {
        decisions[v.index()] = BlockDecision::kKeep;
      }
    }
    return decisions;
  }

 private:
  bool IsThereAnyway(ValueId v) const {
    return !graph_[v].producer || weights_.is_weight(v) || AsksToKeep(graph_[v].keep);
  }

  // Whether the node is one pass over memory that does not reduce a lot of data to a little.
  bool IsCheap(NodeId node) const {
    const Op& op = graph_.op(node);
    if (op.effect() == Effect::kView) return true;
    if (op.effect() != Effect::kPure) return false;
    if (heddle::IsCheap(op)) return true;
    if (!IsReduction(op)) return false;
    Bytes read;
    Bytes written;
    for (ValueId v : graph_.operands(node)) {
      if (v) read += BytesOf(v);
    }
    for (ValueId v : graph_.results(node)) written += BytesOf(v);
    return written * 4 >= read;
  }

  bool IsRecomputed(ValueId v) const {
    NodeId node = graph_[v].producer;
    if (AsksToRecompute(graph_[v].keep) && CanRecompute(graph_, node)) return true;
    return IsCheap(node);
  }

  Bytes BytesOf(ValueId v) const { return graph_.types().bytes(graph_.type(v)); }

  int64_t Capacity(ValueId v) const {
    NodeId node = graph_[v].producer;
    // Keeping a view keeps the storage of its operand.
    if (graph_.op(node).effect() == Effect::kView) return MaxFlow::kInfinite;
    if (graph_[v].keep == Keep::kMustRecompute && CanRecompute(graph_, node))
      return MaxFlow::kInfinite;
    // The sum of all capacities stays below the limit of MaxFlow.
    int64_t most = (int64_t{1} << 60) / static_cast<int64_t>(graph_.value_count() + 1);
    int64_t weight = graph_[v].keep == Keep::kPreferRecompute ? 2 : 1;
    return std::min((BytesOf(v) * weight).value, most);
  }

  // Adds the vertices of a value. Returns false if it needs none.
  bool Reach(ValueId v) {
    if (IsThereAnyway(v)) return false;
    if (in_[v.index()]) return true;
    in_[v.index()] = flow_.AddNode();
    out_[v.index()] = flow_.AddNode();
    flow_.AddEdge(in_[v.index()], out_[v.index()], Capacity(v));
    open_.push_back(v);
    return true;
  }

  void Grow() {
    while (!open_.empty()) {
      ValueId v = open_.back();
      open_.pop_back();
      if (!IsRecomputed(v)) {
        flow_.AddEdge(source_, in_[v.index()], MaxFlow::kInfinite);
        continue;
      }
      for (ValueId operand : NeededAgain(graph_, graph_[v].producer)) {
        if (operand && Reach(operand))
          flow_.AddEdge(out_[operand.index()], in_[v.index()], MaxFlow::kInfinite);
      }
    }
  }

  const Graph& graph_;
  const Weights& weights_;
  MaxFlow flow_;
  // Indexed by value.
  std::vector<FlowNodeId> in_;
  std::vector<FlowNodeId> out_;
  FlowNodeId source_;
  FlowNodeId sink_;
  std::vector<ValueId> open_;
};

}  // namespace

std::vector<BlockDecision> CutDecisions(const Graph& graph, const Weights& weights) {
  return Cutter(graph, weights).Run();
}

}  // namespace heddle::compile
