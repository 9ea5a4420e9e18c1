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

// Copies and casts keep the shape. Copies that rearrange elements are not pointwise.
bool IsPointwise(const Graph& graph, NodeId id) {
  const Op& op = graph.op(id);
  if (op.effect() != Effect::kPure || graph[id].result_count != 1) return false;
  if (IsPointwise(op)) return true;
  if (!IsMove(op) || graph.operands(id).size() != 1 || !graph.operands(id)[0]) return false;
  TypeId in = graph.type(graph.operands(id)[0]);
  TypeId out = graph.type(graph[id].first_result);
  return std::ranges::equal(graph.types().dims(in), graph.types().dims(out));
}

class Fuser {
 public:
  Fuser(const Device& device, const Graph& graph, GraphCosts& costs)
      : device_(device),
        graph_(graph),
        costs_(costs),
        uses_(graph),
        parent_(graph.node_count()),
        source_(graph.value_count()),
        escapes_(graph.node_count()) {
    std::iota(parent_.begin(), parent_.end(), 0U);
    for (ValueId value : graph.values()) source_[value] = value;
  }

  void Run() {
    std::vector<NodeId> run;
    for (NodeId id : graph_.nodes()) {
      bool view = graph_.op(id).effect() == Effect::kView;
      if (view || (IsPointwise(graph_, id) && !costs_.nodes[id].measured)) {
        Join(id, run.empty() ? id : run.front());
        run.push_back(id);
      } else {
        Close(run);
        run.clear();
      }
    }
    Close(run);
  }

 private:
  uint32_t Root(uint32_t n) {
    while (parent_[n] != n) n = parent_[n] = parent_[parent_[n]];
    return n;
  }

  // Joins the node with those producers of its operands that are in the same run.
  void Join(NodeId id, NodeId first) {
    for (ValueId value : graph_.operands(id)) {
      NodeId producer = value ? graph_[value].producer : NodeId();
      if (producer && producer >= first) parent_[Root(id.index())] = Root(producer.index());
    }
  }

  // Splits a run into connected parts, in order, and prices each part with several kernels.
  void Close(const std::vector<NodeId>& run) {
    std::map<uint32_t, std::vector<NodeId>> chains;
    for (NodeId id : run) chains[Root(id.index())].push_back(id);
    for (const auto& [root, chain] : chains) {
      auto kernels = std::ranges::count_if(
          chain, [&](NodeId id) { return costs_.nodes[id].compute.value > 0; });
      if (kernels > 1) PriceChain(root, chain);
    }
  }

  void PriceChain(uint32_t root, const std::vector<NodeId>& chain) {
    FindSources(chain);
    FindEscapes(root, chain);
    std::map<ValueId, Bytes> read;
    Work work;
    Nanos alone;
    for (NodeId id : chain) {
      if (graph_.op(id).effect() == Effect::kView) continue;
      for (ValueId value : graph_.operands(id)) {
        if (!value) continue;
        NodeId maker = graph_[source_[value]].producer;
        bool inside = maker && Root(maker.index()) == root;
        if (!inside) read[source_[value]] += graph_.types().bytes(graph_.type(value));
      }
      ValueId result = graph_[id].first_result;
      work.flops += {graph_.types().elements_bound(graph_.type(result))};
      if (escapes_[id.index()]) work.written += graph_.types().bytes(graph_.type(result));
      alone += costs_.nodes[id].compute;
    }
    // Two parts of a tensor are two reads, but never exceed the whole tensor. A broadcast tensor is
    // read at its own size.
    for (const auto& [value, bytes] : read)
      work.read += std::min(bytes, graph_.types().bytes(graph_.type(value)));
    // A fused kernel is never slower than its parts.
    ShareOut(chain, std::min(alone, PlainTime(device_, work)), alone);
  }

  // Finds the values that views in the chain refer to.
  void FindSources(const std::vector<NodeId>& chain) {
    for (NodeId id : chain) {
      bool view = graph_.op(id).effect() == Effect::kView && !graph_.operands(id).empty();
      for (ValueId result : graph_.results(id))
        source_[result] = view ? source_[graph_.operands(id)[0]] : result;
    }
  }

  // Finds nodes with uses outside the chain, also through views. Goes from the last node to the
  // first.
  void FindEscapes(uint32_t root, const std::vector<NodeId>& chain) {
    for (auto at = chain.rbegin(); at != chain.rend(); ++at) {
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

  void ShareOut(const std::vector<NodeId>& chain, Nanos time, Nanos alone) {
    Nanos given;
    NodeId last;
    for (NodeId id : chain) {
      Nanos& own = costs_.nodes[id].compute;
      if (own.value == 0) continue;
      double share = static_cast<double>(own.value) / static_cast<double>(alone.value);
      own = {static_cast<int64_t>(share * static_cast<double>(time.value))};
      given += own;
      last = id;
    }
    costs_.nodes[last].compute += time - given;
  }

  const Device& device_;
  const Graph& graph_;
  GraphCosts& costs_;
  Uses uses_;
  // Union-find forest of nodes that belong to one kernel.
  std::vector<uint32_t> parent_;
  Table<ValueId, ValueId> source_;
  std::vector<bool> escapes_;
};

}  // namespace

void PriceFused(const Device& device, const Graph& graph, GraphCosts& costs) {
  Fuser(device, graph, costs).Run();
}

}  // namespace heddle::price
