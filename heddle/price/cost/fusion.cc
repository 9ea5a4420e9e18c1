#include "heddle/price/cost/fusion.h"

#include <algorithm>
#include <map>
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
        parent_(graph.node_count()),
        level_(graph.node_count()),
        source_(graph.value_count()),
        escapes_(graph.node_count()) {
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
    std::map<uint32_t, std::vector<NodeId>> groups;
    for (NodeId id : graph_.nodes()) {
      if (Joins(id)) groups[Root(id.index())].push_back(id);
    }
    for (const auto& [root, group] : groups) {
      auto kernels = std::ranges::count_if(
          group, [&](NodeId id) { return costs_.nodes[id].compute.value > 0; });
      if (kernels > 1) PriceGroup(root, group);
    }
  }

 private:
  uint32_t Root(uint32_t n) {
    while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
    return n;
  }

  bool IsView(NodeId id) const { return graph_.op(id).effect() == Effect::kView; }
  bool Joins(NodeId id) const {
    return IsView(id) || (IsFusible(graph_, id) && !costs_.nodes[id].measured);
  }

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
    std::map<std::pair<ValueId, uint32_t>, NodeId> first;
    for (NodeId id : graph_.nodes()) {
      if (IsView(id) || !Joins(id)) continue;
      for (ValueId value : graph_.operands(id)) {
        if (!value || Elements(value) != Elements(graph_[id].first_result)) continue;
        ValueId source = source_[value];
        if (!graph_[source].producer || Elements(source) != Elements(value)) continue;
        auto [at, added] = first.try_emplace({source, level_[id.index()]}, id);
        if (!added) parent_[Root(id.index())] = Root(at->second.index());
      }
    }
  }

  void PriceGroup(uint32_t root, const std::vector<NodeId>& group) {
    FindEscapes(root, group);
    std::map<ValueId, Bytes> read;
    Work work;
    Nanos alone;
    for (NodeId id : group) {
      if (IsView(id)) continue;
      for (ValueId value : graph_.operands(id)) {
        if (!value) continue;
        NodeId maker = graph_[source_[value]].producer;
        bool inside = maker && Root(maker.index()) == root;
        if (!inside) read[source_[value]] += graph_.types().bytes(graph_.type(value));
      }
      for (ValueId result : graph_.results(id)) {
        work.flops += {Elements(result)};
        if (escapes_[id.index()]) work.written += graph_.types().bytes(graph_.type(result));
      }
      alone += costs_.nodes[id].compute;
    }
    // Two parts of a tensor are two reads, but never exceed the whole tensor. A broadcast tensor is
    // read at its own size.
    for (const auto& [value, bytes] : read)
      work.read += std::min(bytes, graph_.types().bytes(graph_.type(value)));
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
  // Union-find forest of nodes that belong to one kernel.
  std::vector<uint32_t> parent_;
  std::vector<uint32_t> level_;
  Table<ValueId, ValueId> source_;
  std::vector<bool> escapes_;
};

}  // namespace

void PriceFused(const Device& device, const ExecutionFigures& figures, const Graph& graph,
                GraphCosts& costs) {
  Fuser(device, figures, graph, costs).Run();
}

}  // namespace heddle::price
