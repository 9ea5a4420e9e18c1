#include "heddle/passes/overlap/layer_words.h"

#include <algorithm>
#include <string_view>

#include "heddle/base/hash.h"
#include "heddle/cost/kernel_time.h"
#include "heddle/ops/ops.h"

namespace heddle {
namespace {

// By node of the schedule: nodes of the graph that it stands for, in their order.
std::vector<std::vector<NodeId>> MembersOf(const Graph& before, const Graph& after) {
  std::unordered_map<std::string_view, NodeId> by_name;
  for (NodeId id : before.nodes()) {
    for (ValueId result : before.results(id)) by_name.emplace(before.name(result), id);
  }
  std::vector<std::vector<NodeId>> members(after.node_count());
  for (NodeId id : after.nodes()) {
    for (ValueId result : after.results(id)) {
      auto at = by_name.find(after.name(result));
      if (at != by_name.end()) members[id.index()].push_back(at->second);
    }
    std::ranges::sort(members[id.index()]);
    auto rest = std::ranges::unique(members[id.index()]);
    members[id.index()].erase(rest.begin(), rest.end());
  }
  // Of a bucket, the waits of all members keep their names; what starts them does not.
  for (NodeId wait : after.nodes()) {
    NodeId start =
        after[wait].op == op::comm_wait ? after[after.operands(wait)[0]].producer : NodeId();
    if (!start || members[wait.index()].size() < 2) continue;
    members[start.index()].clear();
    for (NodeId of : members[wait.index()])
      members[start.index()].push_back(before[before.operands(of)[0]].producer);
    std::ranges::sort(members[start.index()]);
  }
  return members;
}

}  // namespace

LayerWords::LayerWords(const Graph& before, const Graph& after)
    : runs_(FindEqualLayers(before)), words_(after.node_count()) {
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
  std::vector<std::vector<NodeId>> members = MembersOf(before, after);
  for (NodeId id : after.nodes()) {
    const std::vector<NodeId>& of = members[id.index()];
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
