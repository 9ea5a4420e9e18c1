#include "heddle/passes/overlap/layers/layer_words.h"

#include <algorithm>

#include "heddle/cost/kernel_time.h"
#include "heddle/ops/ops.h"

namespace heddle {
namespace {

// By node of the schedule that starts something: its wait.
std::vector<NodeId> WaitsOf(const Graph& graph) {
  std::vector<NodeId> waits(graph.node_count());
  for (NodeId id : graph.nodes()) {
    if (graph[id].op != op::comm_wait) continue;
    if (NodeId start = graph[graph.operands(id)[0]].producer) waits[start.index()] = id;
  }
  return waits;
}

// Nodes of the graph that made what a node of the schedule makes, in their order.
void AddMakers(const Graph& before, const Graph& after, NodeId id, std::vector<NodeId>& makers) {
  for (ValueId result : after.results(id)) {
    const ValueId value = before.FindValue(after.name(result));
    if (!value || !before[value].producer) continue;
    if (makers.empty() || makers.back() != before[value].producer)
      makers.push_back(before[value].producer);
  }
  if (makers.size() < 2) return;
  std::ranges::sort(makers);
  auto rest = std::ranges::unique(makers);
  makers.erase(rest.begin(), rest.end());
}

}  // namespace

LayerWords::LayerWords(const Graph& before, const std::vector<LayerRun>& runs, const Graph& after)
    : runs_(runs), words_(after.node_count()) {
  AddWords(before, after);
  for (NodeId id : after.nodes()) is_product_.push_back(IsMatrixWork(after.op(id)));
  for (uint32_t run = 0; run < runs_.size(); ++run) {
    heads_.emplace_back(runs_[run].count);
    for (uint32_t i = 0; i < runs_[run].nodes; ++i) {
      NodeId first(runs_[run].first + i);
      if (!IsMatrixWork(before.op(first))) continue;
      Word word{.run = run, .layer = 0, .slot = MixHash(MixHash(0, 0), i)};
      for (NodeId& head : heads_[run]) {
        auto at = nodes_.find(Key(word));
        if (at != nodes_.end()) head = at->second;
        ++word.layer;
      }
      break;
    }
  }
}

void LayerWords::AddWords(const Graph& before, const Graph& after) {
  std::vector<LayerPlace> places = PlacesIn(runs_, before.node_count());
  const std::vector<NodeId> waits = WaitsOf(after);
  nodes_.reserve(after.node_count());
  std::vector<NodeId> of;
  for (NodeId id : after.nodes()) {
    of.clear();
    // Of a bucket, what is waited for keeps its names; what was started does not.
    const NodeId wait = waits[id.index()];
    AddMakers(before, after, wait ? wait : id, of);
    if (wait) {
      for (NodeId& member : of) member = before[before.operands(member)[0]].producer;
      std::ranges::sort(of);
    }
    if (of.empty()) continue;
    const LayerPlace first = places[of[0].index()];
    if (first.run == LayerPlace::kNone) continue;
    Word word{.run = first.run, .layer = first.layer, .slot = 0};
    bool same = true;
    for (NodeId member : of) {
      const LayerPlace& place = places[member.index()];
      same = same && place.run == first.run;
      word.slot = MixHash(MixHash(word.slot, place.layer - first.layer), place.slot);
    }
    if (!same) continue;
    words_[id.index()] = word;
    nodes_.emplace(Key(word), id);
  }
}

NodeId LayerWords::Shifted(NodeId id, int64_t layers) const {
  Word word = of(id);
  if (word.run == LayerPlace::kNone) return {};
  const int64_t layer = word.layer + layers;
  if (layer < 0 || layer >= runs_[word.run].count) return {};
  word.layer = static_cast<uint32_t>(layer);
  auto at = nodes_.find(Key(word));
  return at == nodes_.end() ? NodeId() : at->second;
}

}  // namespace heddle
