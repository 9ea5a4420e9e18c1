#include "heddle/compile/passes/overlap/buckets/bucket_moves.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "heddle/compile/passes/fsdp/bucket.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

// The bucket of each waited value, by name, because merging keeps names.
std::unordered_map<std::string_view, size_t> BucketOfName(const Graph& graph,
                                                          const Buckets& buckets) {
  std::vector<size_t> bucket_of(graph.node_count(), buckets.size());
  for (size_t i = 0; i < buckets.size(); ++i) {
    for (NodeId start : buckets[i]) bucket_of[start.index()] = i;
  }
  std::unordered_map<std::string_view, size_t> names;
  for (NodeId id : graph.nodes()) {
    if (graph[id].op != op::comm_wait) continue;
    NodeId start = graph[graph.operands(id)[0]].producer;
    if (!start || bucket_of[start.index()] == buckets.size()) continue;
    for (ValueId result : graph.results(id))
      names.emplace(graph.name(result), bucket_of[start.index()]);
  }
  return names;
}

// The first bucket of the same kind that begins after this one, or the number of buckets.
size_t NextOfKind(const Graph& graph, const Buckets& buckets, size_t bucket) {
  const NodeId first = buckets[bucket][0];
  size_t next = buckets.size();
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i][0] <= first || KeyOf(graph, buckets[i][0]) != KeyOf(graph, first)) continue;
    if (next == buckets.size() || buckets[i][0] < buckets[next][0]) next = i;
  }
  return next;
}

// Copies the buckets that begin in one layer of a run to all its layers. Other buckets stay,
// without the members of these.
class BucketRepeater {
 public:
  BucketRepeater(const Graph& graph, const std::vector<LayerRun>& runs)
      : graph_(graph), runs_(runs), places_(PlacesIn(runs, graph.node_count())) {}

  Buckets Repeat(const Buckets& buckets) {
    taken_.assign(graph_.node_count(), false);
    Buckets repeated;
    for (const std::vector<NodeId>& bucket : buckets) {
      const LayerPlace& place = places_[bucket[0].index()];
      if (place.run == LayerPlace::kNone) continue;
      const int64_t count = runs_[place.run].count;
      if (place.layer != count * 3 / 4) continue;
      for (int64_t layers = -count; layers <= count; ++layers) Add(Moved(bucket, layers), repeated);
    }
    for (const std::vector<NodeId>& bucket : buckets) Add(bucket, repeated);
    std::ranges::sort(repeated);
    return repeated;
  }

 private:
  std::vector<NodeId> Moved(const std::vector<NodeId>& bucket, int64_t layers) const {
    std::vector<NodeId> moved;
    for (NodeId member : bucket) {
      const LayerPlace& place = places_[member.index()];
      if (place.run != places_[bucket[0].index()].run) continue;
      const LayerRun& run = runs_[place.run];
      const int64_t layer = place.layer + layers;
      if (layer < 0 || layer >= run.count) continue;
      const NodeId to(run.first + run.nodes * static_cast<size_t>(layer) + place.slot);
      if (KeyOf(graph_, to) == KeyOf(graph_, member)) moved.push_back(to);
    }
    return moved;
  }

  void Add(std::vector<NodeId> bucket, Buckets& to) {
    std::erase_if(bucket, [&](NodeId member) { return taken_[member.index()]; });
    for (NodeId member : bucket) taken_[member.index()] = true;
    if (bucket.size() > 1) to.push_back(std::move(bucket));
  }

  const Graph& graph_;
  const std::vector<LayerRun>& runs_;
  const std::vector<LayerPlace> places_;
  std::vector<bool> taken_;
};

}  // namespace

std::optional<Buckets> Repeated(const Graph& graph, const std::vector<LayerRun>& runs,
                                const Buckets& buckets) {
  if (runs.empty() || buckets.empty()) return std::nullopt;
  Buckets given = buckets;
  std::ranges::sort(given);
  Buckets repeated = BucketRepeater(graph, runs).Repeat(buckets);
  if (repeated == given) return std::nullopt;
  return repeated;
}

size_t MostExposed(const Graph& graph, const Buckets& buckets, const Graph& merged,
                   const price::Timeline& timeline) {
  std::unordered_map<std::string_view, size_t> bucket_of = BucketOfName(graph, buckets);
  size_t most = buckets.size();
  Nanos exposed;
  for (const price::CollectiveTimes& times : timeline.collectives) {
    if (times.exposed <= exposed || !times.wait) continue;
    auto at = bucket_of.find(merged.name(merged[times.wait].first_result));
    if (at == bucket_of.end()) continue;
    most = at->second;
    exposed = times.exposed;
  }
  return most;
}

std::vector<Buckets> WithShorter(const Graph& graph, const Buckets& buckets, size_t bucket) {
  const std::vector<NodeId>& members = buckets[bucket];
  const size_t next = NextOfKind(graph, buckets, bucket);
  std::vector<Buckets> ways;
  for (size_t fewer = 1; fewer < members.size(); fewer *= 2) {
    auto cut = members.end() - static_cast<ptrdiff_t>(fewer);
    Buckets way = buckets;
    way[bucket] = {members.begin(), cut};
    if (next < buckets.size()) {
      way[next].insert(way[next].end(), cut, members.end());
      std::ranges::sort(way[next]);
      ways.push_back(way);
      way[next] = buckets[next];
    }
    way.emplace_back(cut, members.end());
    ways.push_back(std::move(way));
  }
  for (Buckets& way : ways)
    std::erase_if(way, [](const std::vector<NodeId>& one) { return one.size() < 2; });
  return ways;
}

}  // namespace heddle::compile
