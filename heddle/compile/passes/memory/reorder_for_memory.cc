// reorder-for-memory: runs nodes that free more memory than they allocate as early as possible.
//
//   %dx = aten.mm(%dy, %w)                     %dx = aten.mm(%dy, %w)
//   %da = aten.mul.Tensor(%dx, %c)             %dw = aten.mm(%xt, %dy)       frees %xt
//   %dw = aten.mm(%xt, %dy)           becomes  %da = aten.mul.Tensor(%dx, %c)
//
// A node that is the last reader of more bytes than it allocates prefers the position right after
// its last operand, and after other readers of the storages that it frees. Collectives and waits
// keep their positions, so launches keep their order. The pass uses the new order if its peak is
// lower; otherwise it reports both peaks in a remark.
#include <algorithm>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/fsdp/scheduler.h"
#include "heddle/core/analysis/memory.h"
#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

class Reorderer {
 public:
  Reorderer(Graph& graph, PassContext& context)
      : graph_(graph),
        context_(context),
        liveness_(graph),
        gain_(graph.node_count()),
        last_reader_(graph.value_count()) {}

  Changed Run() {
    Bytes before = ComputeMemoryTimeline(graph_, liveness_).peak;
    FindGains();
    Scheduler scheduler(graph_);
    int64_t moved = 0;
    for (NodeId node : graph_.nodes()) {
      if (NodeId place = EarliestPlace(node)) moved += scheduler.PreferBefore(node, place);
    }
    if (moved == 0) return Changed::kNo;
    Graph reordered = graph_;
    Rewriter rewriter(reordered);
    rewriter.Reorder(scheduler.Run());
    rewriter.Commit();
    Bytes after = ComputeMemoryTimeline(reordered, Liveness(reordered)).peak;
    if (after >= before) {
      context_.AddRemark(graph_, ValueId(), RemarkKind::kNoEffect,
                         "{} could run earlier, but the peak would be {} instead of {}",
                         Counted(moved, "node"), Format(after), Format(before));
      return Changed::kNo;
    }
    context_.Count("moved", moved);
    context_.Count("freed_bytes", (before - after).value);
    graph_ = std::move(reordered);
    return Changed::kYes;
  }

 private:
  void FindGains() {
    for (const Storage& storage : liveness_.storages()) {
      if (storage.space != Space::kDevice) continue;
      if (storage.birth) gain_[storage.birth.index()] -= storage.bytes;
      if (storage.birth && storage.death) gain_[storage.death.index()] += storage.bytes;
    }
  }

  // The earliest position of a node, as the node that it would precede; none if it stays.
  NodeId EarliestPlace(NodeId node) {
    if (!run_begin_ || graph_[node].phase != graph_[run_begin_].phase) run_begin_ = node;
    NodeId behind;
    bool stays = graph_.op(node).effect() == Effect::kComm || gain_[node.index()] <= Bytes{};
    for (ValueId v : graph_.operands(node)) {
      if (!v) continue;
      behind = std::max(behind, Latest(v), Later);
      last_reader_[v.index()] = node;
    }
    if (stays) return {};
    NodeId place = std::max(NodeId(behind ? behind.index() + 1 : 0), run_begin_);
    return place < node ? place : NodeId();
  }

  // The last node so far that produces or reads the value.
  NodeId Latest(ValueId v) const {
    return std::max(graph_[v].producer, last_reader_[v.index()], Later);
  }
  static bool Later(NodeId a, NodeId b) { return b && (!a || a < b); }

  Graph& graph_;
  PassContext& context_;
  Liveness liveness_;
  // Indexed by node: bytes that it frees minus bytes that it allocates.
  std::vector<Bytes> gain_;
  std::vector<NodeId> last_reader_;
  // The begin of the walk's current phase. No node leaves its phase.
  NodeId run_begin_;
};

Result<Changed> ReorderForMemory(Graph& graph, PassContext& context) {
  return Reorderer(graph, context).Run();
}

constexpr std::string_view kReorderForMemoryStats[] = {"moved", "freed_bytes"};

}  // namespace

HEDDLE_DEFINE_PASS(reorder_for_memory){
    .name = "reorder-for-memory",
    .summary = "Runs nodes that free memory as early as possible, if that lowers the peak",
    .run = Run<ReorderForMemory>,
    .stats = kReorderForMemoryStats,
};

}  // namespace heddle::compile
