#include "heddle/core/analysis/memory.h"

#include <algorithm>

namespace heddle {

MemoryTimeline ComputeMemoryTimeline(const Graph& graph, const Liveness& liveness, Space space) {
  MemoryTimeline timeline;
  size_t n = graph.node_count();
  // First the differences: bytes allocated at a node, and bytes freed after it.
  std::vector<Bytes> delta(n + 1);
  for (const Storage& storage : liveness.storages()) {
    if (storage.space != space) continue;
    if (!storage.birth) {
      timeline.inputs += storage.bytes;
      continue;
    }
    delta[storage.birth.index()] += storage.bytes;
    if (storage.death) delta[storage.death.index() + 1] -= storage.bytes;
  }
  timeline.live.resize(n);
  Bytes live = timeline.inputs;
  timeline.peak = live;
  for (size_t i = 0; i < n; ++i) {
    live += delta[i];
    timeline.live[i] = live;
    if (live > timeline.peak || !timeline.peak_node) {
      timeline.peak = live;
      timeline.peak_node = NodeId(i);
    }
  }
  if (!timeline.peak_node) return timeline;
  for (StorageId id : liveness.storages().ids()) {
    bool here = liveness.storages()[id].space == space;
    if (here && liveness.alive_at(id, timeline.peak_node)) timeline.alive_at_peak.push_back(id);
  }
  std::ranges::stable_sort(timeline.alive_at_peak, [&](StorageId a, StorageId b) {
    return liveness.storages()[a].bytes > liveness.storages()[b].bytes;
  });
  return timeline;
}

Bytes KeptForBackward(const Graph& graph) {
  NodeId last;
  for (NodeId id : graph.nodes()) {
    if (graph[id].phase == Phase::kForward) last = id;
  }
  Bytes kept;
  if (!last) return kept;
  Liveness liveness(graph);
  for (const Storage& storage : liveness.storages()) {
    bool made = storage.birth && storage.birth <= last && storage.space == Space::kDevice;
    if (made && (!storage.death || last < storage.death)) kept += storage.bytes;
  }
  return kept;
}

}  // namespace heddle
