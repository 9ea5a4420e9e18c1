#include "heddle/search/memory/levels.h"

#include <algorithm>
#include <map>

#include "heddle/compile/passes/memory/recompute.h"
#include "heddle/core/analysis/uses.h"
#include "heddle/core/ir/storage.h"
#include "heddle/core/ops/ops.h"

namespace heddle::search {
namespace {

// By node: whether forward runs it only for backward.
std::vector<bool> OnlyForBackward(const Graph& graph) {
  Uses uses(graph);
  std::vector<bool> only(graph.node_count());
  for (size_t n = graph.node_count(); n-- > 0;) {
    NodeId node{n};
    if (graph[node].phase != Phase::kForward) continue;
    only[n] = std::ranges::all_of(graph.results(node), [&](ValueId v) {
      return !uses.is_output(v) && std::ranges::all_of(uses.of(v), [&](const Use& use) {
        return graph[use.node].phase != Phase::kForward || only[use.node.index()];
      });
    });
  }
  return only;
}

}  // namespace

Result<RunTimes> FindRunTimes(const Module& module, const price::CostModel& model) {
  const Graph& graph = module.graphs[0];
  HEDDLE_TRY(price::GraphCosts costs, model.Price(module, graph));
  std::vector<Nanos> nothing(graph.node_count());
  RunTimes times{nothing, nothing, nothing};
  std::vector<bool> only_for_backward = OnlyForBackward(graph);
  for (NodeId node : graph.nodes()) {
    size_t n = node.index();
    times.once[n] = costs.nodes[node].compute;
    if (only_for_backward[n]) continue;
    Nanos collective;
    if (NodeId launch = LaunchOf(graph, node))
      collective = costs.nodes[launch].pack + costs.nodes[launch].collective.total();
    times.compute[n] = times.once[n];
    times.all[n] = times.once[n] + collective;
  }
  return times;
}

LevelVariants::LevelVariants(const Graph& graph, const Weights& weights, const Blocks& blocks)
    : graph_(graph), weights_(weights), blocks_(blocks) {
  std::vector<bool> seen(graph.value_count());
  for (NodeId node : graph.nodes()) {
    if (graph[node].phase == Phase::kForward) continue;
    for (ValueId v : graph.operands(node)) {
      // A view is recomputed from its operand.
      while (v && graph[v].producer && ViewedOperand(graph, graph[v].producer))
        v = ViewedOperand(graph, graph[v].producer);
      if (!compile::Crosses(graph, node, v) || seen[v.index()]) continue;
      seen[v.index()] = true;
      if (weights.is_gathered(v) && graph[graph[v].producer].op == op::comm_wait)
        gathered_.push_back(v);
    }
  }
}

Level LevelVariants::WithMark(const Level& level, Keep mark, std::string_view name) const {
  Level with = level;
  for (ValueId v : gathered_) with.marks[v.index()] = mark;
  if (!gathered_.empty()) with.name += name;
  return with;
}

Level LevelVariants::WithWeights(const Level& level) const {
  return WithMark(level, Keep::kMustSave, "+weights");
}

Level LevelVariants::GatheredAgain(const Level& level) const {
  return WithMark(level, Keep::kPreferRecompute, "+gather");
}

Level LevelVariants::Offloaded(const Level& level, const price::CostModel& model,
                               std::span<const Nanos> times, double share) const {
  if (!model.cluster().host) return level;
  Level moved = level;
  std::map<int64_t, Nanos> time_of_block;
  for (NodeId node : graph_.nodes()) {
    if (graph_[node].phase == Phase::kForward)
      time_of_block[blocks_.of(node)] += times[node.index()];
  }
  std::map<int64_t, std::vector<ValueId>> kept;
  for (ValueId v : graph_.values()) {
    if (level.marks[v.index()] != Keep::kMustSave || weights_.is_weight(v)) continue;
    price::CollectiveCost copy = model.Copy(graph_.types().bytes(graph_.type(v)));
    if (copy.transfer > copy.latency) kept[blocks_.of(graph_[v].producer)].push_back(v);
  }
  for (auto& [block, values] : kept) {
    std::ranges::stable_sort(values, [&](ValueId a, ValueId b) {
      return graph_.types().bytes(graph_.type(a)) > graph_.types().bytes(graph_.type(b));
    });
    double room = static_cast<double>(time_of_block[block].value) * share;
    for (ValueId v : values) {
      auto takes =
          static_cast<double>(model.Copy(graph_.types().bytes(graph_.type(v))).total().value);
      if (takes > room) continue;
      room -= takes;
      moved.marks[v.index()] = Keep::kOffload;
    }
  }
  if (moved.marks != level.marks) moved.name += fmt::format("+host {:.0f}%", share * 100);
  return moved;
}

}  // namespace heddle::search
