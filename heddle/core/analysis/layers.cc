#include "heddle/core/analysis/layers.h"

#include <algorithm>
#include <map>
#include <utility>

#include "heddle/core/analysis/blocks.h"
#include "heddle/core/analysis/liveness.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/core/ir/storage.h"

namespace heddle {

Layers::Layers(const Graph& graph)
    : position_(graph.node_count(), kAnywhere),
      part_(graph.node_count(), StepPart::kForward),
      weight_(graph.value_count()) {
  FindParts(graph);
  FindPositions(graph);
  auto positions = static_cast<size_t>(count_ + 2);
  forward_.resize(positions);
  backward_.resize(positions);
  FindInputGradients(graph);
  FindCrossings(graph);
  FindKept(graph);
}

// Input gradients are separated from weight gradients later.
void Layers::FindParts(const Graph& graph) {
  Weights weights(graph);
  for (ValueId value : graph.values()) weight_[value.index()] = weights.is_weight(value);
  for (NodeId id : graph.nodes()) {
    IdRange<ValueId> results = graph.results(id);
    bool makes_weight = !results.empty() && std::ranges::all_of(results, [&](ValueId value) {
      return weights.is_weight(value);
    });
    bool once = makes_weight || weights.carries_gradient(id) || IsGradReduction(graph, id) ||
                IsUnshard(graph, id) || graph[id].phase == Phase::kOptimizer;
    StepPart per_micro_batch =
        graph[id].phase == Phase::kForward ? StepPart::kForward : StepPart::kWeightGradient;
    part_[id.index()] = once ? StepPart::kOnce : per_micro_batch;
  }
}

void Layers::FindPositions(const Graph& graph) {
  Blocks blocks(graph);
  count_ = blocks.count();
  for (NodeId id : graph.nodes()) {
    if (part(id) == StepPart::kOnce) continue;
    int64_t block = blocks.of(id);
    position_[id.index()] =
        block == Blocks::kNone || IsTable(graph, id) ? PositionFromReads(graph, id) : block + 1;
  }
}

// A table of positions that backward makes again. All layers share it, whatever its scope.
bool Layers::IsTable(const Graph& graph, NodeId node) const {
  return graph[node].phase == Phase::kBackward && PositionFromReads(graph, node) == kAnywhere;
}

int64_t Layers::PositionFromReads(const Graph& graph, NodeId node) const {
  int64_t latest = kAnywhere;
  int64_t earliest_gradient = count_ + 2;
  ForEachRead(graph, node, [&](ValueId value) {
    if (weight_[value.index()]) {
      latest = std::max<int64_t>(latest, 0);
      return;
    }
    NodeId producer = graph[value].producer;
    if (!producer || part(producer) == StepPart::kOnce || position(producer) == kAnywhere) return;
    latest = std::max(latest, position(producer));
    if (graph[producer].phase == Phase::kBackward)
      earliest_gradient = std::min(earliest_gradient, position(producer));
  });
  // Gradients move to earlier positions: below the layers there is only the embedding.
  if (earliest_gradient <= count_) return 0;
  return latest <= 0 ? latest : count_ + 1;
}

bool Layers::Crosses(const Graph& graph, ValueId value, NodeId reader) const {
  NodeId producer = graph[value].producer;
  if (!producer || part(producer) == StepPart::kOnce || part(reader) == StepPart::kOnce)
    return false;
  if (position(producer) == kAnywhere || position(reader) == kAnywhere) return false;
  return graph[producer].phase == graph[reader].phase && position(producer) != position(reader);
}

void Layers::FindInputGradients(const Graph& graph) {
  std::vector<bool> needed(graph.value_count());
  for (size_t i = graph.node_count(); i-- > 0;) {
    NodeId id(static_cast<uint32_t>(i));
    if (part(id) != StepPart::kWeightGradient) continue;
    bool needs = std::ranges::any_of(graph.results(id),
                                     [&](ValueId value) { return needed[value.index()]; });
    if (needs) part_[i] = StepPart::kInputGradient;
    ForEachRead(graph, id, [&](ValueId value) {
      if (needs || Crosses(graph, value, id)) needed[value.index()] = true;
    });
  }
}

void Layers::FindCrossings(const Graph& graph) {
  Liveness liveness(graph);
  // By storage: the positions to which its values have been counted.
  std::vector<int64_t> reached(liveness.storages().size(), kAnywhere);
  for (NodeId id : graph.nodes()) {
    ForEachRead(graph, id, [&](ValueId value) {
      if (!Crosses(graph, value, id)) return;
      int64_t from = position(graph[value].producer);
      int64_t to = position(id);
      StorageId storage = liveness.of(value);
      Bytes bytes = liveness.storages()[storage].bytes;
      int64_t& known = reached[storage.index()];
      if (known == kAnywhere) known = from;
      for (; known < to; ++known) forward_[static_cast<size_t>(known)] += bytes;
      for (; known > to; --known) backward_[static_cast<size_t>(known)] += bytes;
    });
  }
}

void Layers::FindKept(const Graph& graph) {
  Liveness liveness(graph);
  // The positions whose backward reads a storage.
  std::vector<std::vector<int64_t>> readers(liveness.storages().size());
  for (NodeId id : graph.nodes()) {
    bool backward = part(id) == StepPart::kInputGradient || part(id) == StepPart::kWeightGradient;
    if (!backward || position(id) == kAnywhere) continue;
    ForEachRead(graph, id, [&](ValueId value) {
      NodeId producer = graph[value].producer;
      if (!producer || part(producer) != StepPart::kForward) return;
      if (position(producer) != kAnywhere)
        readers[liveness.of(value).index()].push_back(position(id));
    });
  }
  std::map<std::pair<int64_t, int64_t>, Bytes> sums;
  for (StorageId id : liveness.storages().ids()) {
    std::vector<int64_t>& positions = readers[id.index()];
    std::ranges::sort(positions);
    int64_t previous = kAnywhere;
    for (int64_t position : positions)
      if (position != previous)
        sums[{position, std::exchange(previous, position)}] += liveness.storages()[id].bytes;
  }
  for (const auto& [places, bytes] : sums) kept_.push_back({places.first, places.second, bytes});
}

Bytes Layers::KeptBy(int64_t begin, int64_t end) const {
  Bytes sum;
  for (const Kept& kept : kept_)
    if (begin <= kept.position && kept.position < end && kept.previous < begin) sum += kept.bytes;
  return sum;
}

}  // namespace heddle
