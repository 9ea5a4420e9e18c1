#include "bench/knapsack.h"

#include <algorithm>
#include <cmath>

#include "heddle/compile/passes/memory/recompute.h"
#include "heddle/core/analysis/max_flow.h"

namespace heddle {
namespace {

// Resolution of the knapsack: steps of the whole.
constexpr int64_t kSteps = 10'000;

bool IsExpensive(const Graph& graph, NodeId node) {
  std::string_view family = graph.op(node).family;
  return family == "matmul" || family == "attention" || graph.op(node).effect() == Effect::kComm;
}

}  // namespace

KnapsackPolicy::KnapsackPolicy(const Graph& graph, const Weights& weights,
                               std::span<const Nanos> again)
    : graph_(graph), weights_(weights), again_(again) {}

bool KnapsackPolicy::IsThereAnyway(ValueId v) const {
  return !v || !graph_[v].producer || weights_.is_weight(v) ||
         graph_.types()[graph_.type(v)].async ||
         graph_[graph_[v].producer].phase != Phase::kForward;
}

// Collectives are never recomputed. Neither are reductions with much smaller outputs than inputs,
// unless only expensive ops are banned.
std::vector<bool> KnapsackPolicy::Bans(bool only_expensive) const {
  std::vector<bool> banned(graph_.node_count());
  for (NodeId node : graph_.nodes()) {
    Bytes read;
    Bytes written;
    for (ValueId v : graph_.operands(node)) {
      if (v) read += graph_.types().bytes(graph_.type(v));
    }
    for (ValueId v : graph_.results(node)) written += graph_.types().bytes(graph_.type(v));
    std::string_view family = graph_.op(node).family;
    bool reduces = (family == "reduce" || family == "norm") && written * 4 < read;
    banned[node.index()] = !compile::CanRecompute(graph_, node) || IsExpensive(graph_, node) ||
                           (reduces && !only_expensive);
  }
  return banned;
}

search::Marks KnapsackPolicy::CutWith(const std::vector<bool>& banned) const {
  MaxFlow flow;
  FlowNodeId source = flow.AddNode();
  FlowNodeId sink = flow.AddNode();
  std::vector<FlowNodeId> in(graph_.value_count());
  std::vector<FlowNodeId> out(graph_.value_count());
  std::vector<ValueId> open;
  auto reach = [&](ValueId v) {
    if (IsThereAnyway(v)) return false;
    if (in[v.index()]) return true;
    in[v.index()] = flow.AddNode();
    out[v.index()] = flow.AddNode();
    bool view = graph_.op(graph_[v].producer).effect() == Effect::kView;
    flow.AddEdge(in[v.index()], out[v.index()],
                 view ? MaxFlow::kInfinite : graph_.types().bytes(graph_.type(v)).value);
    open.push_back(v);
    return true;
  };
  for (NodeId node : graph_.nodes()) {
    for (ValueId v : graph_.operands(node)) {
      bool is_new = v && !in[v.index()];
      if (compile::Crosses(graph_, node, v) && is_new && reach(v))
        flow.AddEdge(out[v.index()], sink, MaxFlow::kInfinite);
    }
  }
  while (!open.empty()) {
    ValueId v = open.back();
    open.pop_back();
    NodeId node = graph_[v].producer;
    if (banned[node.index()]) {
      flow.AddEdge(source, in[v.index()], MaxFlow::kInfinite);
      continue;
    }
    for (ValueId needed : compile::NeededAgain(graph_, node)) {
      if (needed && reach(needed))
        flow.AddEdge(out[needed.index()], in[v.index()], MaxFlow::kInfinite);
    }
  }
  flow.Solve(source, sink);
  search::Marks marks(graph_.value_count(), Keep::kDefault);
  for (ValueId v : graph_.values()) {
    if (!in[v.index()]) continue;
    if (flow.OnSinkSide(in[v.index()])) {
      marks[v.index()] = Keep::kPreferRecompute;
    } else if (flow.OnSinkSide(out[v.index()])) {
      marks[v.index()] = Keep::kMustSave;
    }
  }
  return marks;
}

Bytes KnapsackPolicy::Saved(const search::Marks& marks) const {
  Bytes saved;
  for (ValueId v : graph_.values()) {
    if (marks[v.index()] == Keep::kMustSave) saved += graph_.types().bytes(graph_.type(v));
  }
  return saved;
}

// Selects the items to save: the largest recompute time within `share` of `most` bytes.
std::vector<bool> KnapsackPolicy::Pack(const std::vector<NodeId>& items, Bytes most,
                                       double share) const {
  auto room = static_cast<size_t>(std::floor(share * kSteps));
  std::vector<int64_t> best(room + 1);
  std::vector<std::vector<bool>> taken(items.size(), std::vector<bool>(room + 1));
  std::vector<size_t> sizes;
  for (size_t i = 0; i < items.size(); ++i) {
    Bytes bytes;
    for (ValueId v : graph_.results(items[i])) bytes += graph_.types().bytes(graph_.type(v));
    double part = static_cast<double>(bytes.value) / static_cast<double>(most.value);
    sizes.push_back(static_cast<size_t>(std::lround(part * kSteps)));
    int64_t time = std::max<int64_t>(again_[items[i].index()].value, 1);
    for (size_t at = room + 1; at-- > sizes[i];) {
      if (best[at - sizes[i]] + time <= best[at]) continue;
      best[at] = best[at - sizes[i]] + time;
      taken[i][at] = true;
    }
  }
  std::vector<bool> saved(items.size());
  size_t left = room;
  for (size_t i = items.size(); i-- > 0;) {
    if (!taken[i][left]) continue;
    saved[i] = true;
    left -= sizes[i];
  }
  return saved;
}

search::Marks KnapsackPolicy::Decide(double share) const {
  search::Marks fastest = CutWith(Bans(false));
  if (share >= 1) return fastest;
  Bytes most = Saved(fastest);
  std::vector<bool> banned = Bans(true);
  search::Marks smaller = CutWith(banned);
  auto limit = static_cast<int64_t>(share * static_cast<double>(most.value));
  if (Saved(smaller).value < limit) return smaller;
  std::vector<NodeId> items;
  for (NodeId node : graph_.nodes()) {
    bool is_saved = std::ranges::any_of(
        graph_.results(node), [&](ValueId v) { return smaller[v.index()] == Keep::kMustSave; });
    bool repeats = compile::CanRecompute(graph_, node) && graph_.op(node).effect() != Effect::kComm;
    if (is_saved && banned[node.index()] && repeats) items.push_back(node);
  }
  std::vector<bool> saved = Pack(items, most, share);
  for (size_t i = 0; i < items.size(); ++i) banned[items[i].index()] = saved[i];
  return CutWith(banned);
}

}  // namespace heddle
