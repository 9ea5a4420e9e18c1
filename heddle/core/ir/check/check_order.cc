#include "heddle/core/ir/check/check_impl.h"
#include "heddle/core/ir/storage.h"

namespace heddle {
namespace {

class OrderVerifier {
 public:
  explicit OrderVerifier(GraphReport& report)
      : report_(report), graph_(report.graph()), donations_(graph_) {}

  void Run() {
    CheckWaits();
    CheckStreams();
    CheckUpdates();
  }

 private:
  bool IsAsync(ValueId value) const {
    return graph_[value].type && graph_.types().is_async(graph_.type(value));
  }

  // Every async value has exactly one wait.
  void CheckWaits() {
    Table<ValueId, NodeId> waited(graph_.value_count());
    bool unread = false;
    for (NodeId id : graph_.nodes()) {
      unread |= !graph_[id].op;
      for (ValueId value : graph_.operands(id)) {
        if (!value || !IsAsync(value)) continue;
        if (waited[value]) {
          report_.AddOperand(id, 0, Diag::kAsyncUse, "`%{}` is waited for twice, first by node {}",
                             graph_.name(value), waited[value].index());
        }
        waited[value] = id;
      }
    }
    // An unreadable line may be the wait.
    if (unread) return;
    for (ValueId value : graph_.values()) {
      NodeId start = graph_[value].producer;
      if (start && IsAsync(value) && !waited[value])
        report_.AddNode(start, Diag::kAsyncUse, "`%{}` has no `comm.wait`", graph_.name(value));
    }
  }

  // A stream names a communicator, so only a node that starts an operation has one.
  void CheckStreams() {
    for (NodeId id : graph_.nodes()) {
      const Node& node = graph_[id];
      if (node.stream == 0 || !node.op) continue;
      bool starts = false;
      for (ValueId result : graph_.results(id)) starts |= !graph_[result].type || IsAsync(result);
      if (!starts)
        report_.AddNode(id, Diag::kStream, "the node has stream {}, but starts no operation",
                        node.stream);
    }
  }

  // No node reads a storage after an update takes it over, through any view.
  void CheckUpdates() {
    if (!donations_.any()) return;
    // Indexed by root, up to the current node.
    Table<ValueId, NodeId> taken_by(graph_.value_count());
    for (NodeId id : graph_.nodes()) {
      if (!graph_[id].op) continue;
      CheckReads(id, taken_by);
      TakeOver(id, taken_by);
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i) {
      ValueId value = graph_.outputs()[i].value;
      NodeId taker = value ? taken_by[donations_.root(value)] : NodeId();
      if (!taker) continue;
      report_.AddOutput(i, Diag::kReadAfterUpdate,
                        "output `%{}` is returned after {} took over its storage",
                        graph_.name(value), report_.OpName(taker));
    }
  }

  void CheckReads(NodeId id, const Table<ValueId, NodeId>& taken_by) {
    size_t i = 0;
    for (ValueId v : graph_.operands(id)) {
      NodeId taker = v ? taken_by[donations_.root(v)] : NodeId();
      if (taker) {
        report_.AddOperand(id, i, Diag::kReadAfterUpdate,
                           "`%{}` is read after {} took over its storage", graph_.name(v),
                           report_.OpName(taker));
      }
      ++i;
    }
    if (!IsWait(graph_, id)) return;
    ForEachRead(graph_, id, [&](ValueId v) {
      NodeId taker = taken_by[donations_.root(v)];
      if (!taker || v == graph_.operands(id)[0]) return;
      report_.AddNode(id, Diag::kReadAfterUpdate,
                      "`%{}` is in flight until here, but {} took over its storage earlier",
                      graph_.name(v), report_.OpName(taker));
    });
  }

  void TakeOver(NodeId id, Table<ValueId, NodeId>& taken_by) {
    std::span<const ValueId> operands = graph_.operands(id);
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!donations_.Takes(id, i)) continue;
      NodeId& taker = taken_by[donations_.root(operands[i])];
      if (taker == id) {
        report_.AddOperand(id, i, Diag::kReadAfterUpdate,
                           "the storage of `%{}` is taken over by two results",
                           graph_.name(operands[i]));
      }
      taker = id;
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      if (!operands[i] || donations_.Takes(id, i)) continue;
      if (taken_by[donations_.root(operands[i])] != id) continue;
      report_.AddOperand(id, i, Diag::kReadAfterUpdate,
                         "the storage of `%{}` is read, and taken over through another operand",
                         graph_.name(operands[i]));
    }
  }

  GraphReport& report_;
  const Graph& graph_;
  BufferDonations donations_;
};

}  // namespace

void CheckOrder(GraphReport& report) { OrderVerifier(report).Run(); }

}  // namespace heddle
