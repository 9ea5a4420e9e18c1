#include "heddle/price/cost/fusion.h"

#include <algorithm>
#include <numeric>

#include "heddle/core/analysis/uses.h"
#include "heddle/core/ops/families.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/cost/kernel_time.h"

namespace heddle::price {
namespace {

// Ops on elements and rows. Copies that rearrange elements are addressing in a fused kernel.
bool IsFusible(const Graph& graph, NodeId id) {
  const Op& op = graph.op(id);
  if (op.effect() != Effect::kPure) return false;
  return IsCheap(op) || IsReduction(op) || FamilyOf(op) == OpFamily::loss;
}

class Fuser {
 public:
  Fuser(const Device& device, const ExecutionFigures& figures, const Graph& graph,
        GraphCosts& costs)
      : device_(device),
        figures_(figures),
        graph_(graph),
        costs_(costs),
        uses_(graph),
        joins_(graph.node_count()),
        parent_(graph.node_count()),
        level_(graph.node_count()),
        source_(graph.value_count()),
        escapes_(graph.node_count()),
        read_(graph.value_count()) {
    for (NodeId id : graph.nodes())
      joins_[id.index()] = IsView(id) || (IsFusible(graph, id) && !costs.nodes[id].measured);
    std::iota(parent_.begin(), parent_.end(), 0U);
    for (ValueId value : graph.values()) source_[value] = value;
  }

  void Run() {
    FindLevels();
    FindSources();
    for (NodeId id : graph_.nodes()) {
      if (Joins(id)) JoinProducers(id);
    }
    JoinReaders();
    // Groups with several kernels, by root.
    std::vector<uint32_t> kernels(graph_.node_count());
    for (NodeId id : graph_.nodes()) {
      if (Joins(id) && costs_.nodes[id].compute.value > 0) ++kernels[Root(id.index())];
    }
    std::vector<std::vector<NodeId>> groups(graph_.node_count());
    for (NodeId id : graph_.nodes()) {
      if (Joins(id) && kernels[Root(id.index())] > 1) groups[Root(id.index())].push_back(id);
    }
    for (uint32_t root = 0; root < groups.size(); ++root) {
      if (!groups[root].empty()) PriceGroup(root, groups[root]);
    }
  }

 private:
  uint32_t Root(uint32_t n) {
    while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
    return n;
  }

  bool IsView(NodeId id) const { return graph_.op(id).effect() == Effect::kView; }
  bool Joins(NodeId id) const { return joins_[id.index()]; }

  // From the last node to the first.
  void FindLevels() {
    for (uint32_t n = static_cast<uint32_t>(graph_.node_count()); n-- > 0;) {
      NodeId id(n);
      for (ValueId result : graph_.results(id)) {
        for (const Use& use : uses_.of(result)) {
          uint32_t after = level_[use.node.index()] + (Joins(use.node) ? 0 : 1);
          level_[n] = std::max(level_[n], after);
        }
      }
    }
  }

  void JoinProducers(NodeId id) {
    for (ValueId value : graph_.operands(id)) {
      NodeId producer = value ? graph_[value].producer : NodeId();
      if (producer && Joins(producer) && level_[producer.index()] == level_[id.index()])
        parent_[Root(id.index())] = Root(producer.index());
    }
  }

  int64_t Elements(ValueId value) const {
    return graph_.types().elements_bound(graph_.type(value));
  }

  // Joins nodes of one level that read all of the same tensor, and compute as many elements.
  void JoinReaders() {
    // The first reader of a tensor on a level, and the entry for another level.
    struct Reader {
      NodeId node;
      uint32_t next;
    };
    constexpr uint32_t kNone = UINT32_MAX;
    std::vector<Reader> readers;
    std::vector<uint32_t> first(graph_.value_count(), kNone);
    for (NodeId id : graph_.nodes()) {
      if (IsView(id) || !Joins(id)) continue;
      for (ValueId value : graph_.operands(id)) {
        if (!value || Elements(value) != Elements(graph_[id].first_result)) continue;
        ValueId source = source_[value];
        if (!graph_[source].producer || Elements(source) != Elements(value)) continue;
        uint32_t at = first[source.index()];
        while (at != kNone && level_[readers[at].node.index()] != level_[id.index()])
          at = readers[at].next;
        if (at != kNone) {
          parent_[Root(id.index())] = Root(readers[at].node.index());
          continue;
        }
        readers.push_back({id, first[source.index()]});
        first[source.index()] = static_cast<uint32_t>(readers.size() - 1);
      }
    }
  }

  void PriceGroup(uint32_t root, const std::vector<NodeId>& group) {
    FindEscapes(root, group);
    std::vector<ValueId> inputs;
    Work work;
    Nanos alone;
    for (NodeId id : group) {
      if (IsView(id)) continue;
      for (ValueId value : graph_.operands(id)) {
        if (!value) continue;
        NodeId maker = graph_[source_[value]].producer;
        bool inside = maker && Root(maker.index()) == root;
        if (inside) continue;
        ValueId source = source_[value];
        if (read_[source] == Bytes()) inputs.push_back(source);
        read_[source] += graph_.types().bytes(graph_.type(value));
      }
      for (ValueId result : graph_.results(id)) {
        work.flops += {Elements(result)};
        if (escapes_[id.index()]) work.written += graph_.types().bytes(graph_.type(result));
      }
      alone += costs_.nodes[id].compute;
    }
    // Two parts of a tensor are two reads, but never exceed the whole tensor. A broadcast tensor is
    // read at its own size.
    for (ValueId value : inputs) {
      work.read += std::min(read_[value], graph_.types().bytes(graph_.type(value)));
      read_[value] = Bytes();
    }
    // A fused kernel is never slower than its parts.
    ShareOut(group, std::min(alone, PlainTime(device_, work, figures_.fused_memory)), alone);
  }

  // Finds the values that views refer to.
  void FindSources() {
    for (NodeId id : graph_.nodes()) {
      bool view = graph_.op(id).effect() == Effect::kView && !graph_.operands(id).empty();
      for (ValueId result : graph_.results(id))
        source_[result] = view ? source_[graph_.operands(id)[0]] : result;
    }
  }

  // Finds nodes with uses outside the group, also through views. Goes from the last node to the
  // first.
  void FindEscapes(uint32_t root, const std::vector<NodeId>& group) {
    for (auto at = group.rbegin(); at != group.rend(); ++at) {
      bool escapes = false;
      for (ValueId result : graph_.results(*at)) {
        escapes |= uses_.is_output(result);
        for (const Use& use : uses_.of(result)) {
          bool inside = Root(use.node.index()) == root;
          bool view = graph_.op(use.node).effect() == Effect::kView;
          escapes |= !inside || (view && escapes_[use.node.index()]);
        }
      }
      escapes_[at->index()] = escapes;
    }
  }

  void ShareOut(const std::vector<NodeId>& group, Nanos time, Nanos alone) {
    Nanos given;
    NodeId last;
    for (NodeId id : group) {
      Nanos& own = costs_.nodes[id].compute;
      if (own.value == 0) continue;
      double share = static_cast<double>(own.value) / static_cast<double>(alone.value);
      own = {static_cast<int64_t>(share * static_cast<double>(time.value))};
      costs_.nodes[id].in_kernel = bool(last);
      costs_.nodes[id].inside = figures_.inside && !escapes_[id.index()];
      given += own;
      last = id;
    }
    costs_.nodes[last].compute += time - given;
  }

  const Device& device_;
  const ExecutionFigures& figures_;
  const Graph& graph_;
  GraphCosts& costs_;
  Uses uses_;
  std::vector<bool> joins_;
  // Union-find forest of nodes that belong to one kernel.
  std::vector<uint32_t> parent_;
  std::vector<uint32_t> level_;
  Table<ValueId, ValueId> source_;
  std::vector<bool> escapes_;
  // By tensor: bytes that the current group reads.
  Table<ValueId, Bytes> read_;
};

}  // namespace

void PriceFused(const Device& device, const ExecutionFigures& figures, const Graph& graph,
                GraphCosts& costs) {
  Fuser(device, figures, graph, costs).Run();
}

}  // namespace heddle::price
