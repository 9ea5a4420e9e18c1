#include "heddle/passes/overlap/bucket_moves.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "heddle/ops/ops.h"
#include "heddle/passes/fsdp/bucket.h"

namespace heddle {
namespace {

// By the name of what is waited for, which merging keeps: the bucket.
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

// The first bucket of the same kind that begins behind this one, or their number.
size_t NextOfKind(const Graph& graph, const Buckets& buckets, size_t bucket) {
  const NodeId first = buckets[bucket][0];
  size_t next = buckets.size();
  for (size_t i = 0; i < buckets.size(); ++i) {
    if (buckets[i][0] <= first || KeyOf(graph, buckets[i][0]) != KeyOf(graph, first)) continue;
    if (next == buckets.size() || buckets[i][0] < buckets[next][0]) next = i;
  }
  return next;
}

}  // namespace

size_t MostExposed(const Graph& graph, const Buckets& buckets, const Graph& merged,
                   const Timeline& timeline) {
  std::unordered_map<std::string_view, size_t> bucket_of = BucketOfName(graph, buckets);
  size_t most = buckets.size();
  Nanos exposed;
  for (const CollectiveTimes& times : timeline.collectives) {
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

}  // namespace heddle
