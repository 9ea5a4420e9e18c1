#include "heddle/core/analysis/equal_layers.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "heddle/core/base/hash.h"

namespace heddle {
namespace {

// Per node, a hash that equal nodes share.
std::vector<uint64_t> Words(const Graph& graph) {
  std::vector<uint64_t> words;
  words.reserve(graph.node_count());
  for (NodeId id : graph.nodes()) {
    const Node& node = graph[id];
    uint64_t word = MixHash(node.op.index(), static_cast<uint64_t>(node.phase));
    word = MixHash(word, node.stream);
    // A collective names its unit, which differs between layers. Its types identify its effect.
    const bool transfer = graph.op(id).effect() == Effect::kComm;
    const AttrValue* over = transfer ? graph.attrs(id).Find("over") : nullptr;
    word = MixHash(word, transfer ? 0 : node.attrs.index() + 1);
    if (over != nullptr) word = MixHash(word, std::get<Axes>(*over).bits());
    for (ValueId v : graph.operands(id)) {
      const bool made = v && graph[v].producer;
      word = MixHash(word, v ? graph.type(v).index() * 2 + made : UINT64_MAX);
    }
    for (ValueId v : graph.results(id)) word = MixHash(word, graph.type(v).index());
    words.push_back(word);
  }
  return words;
}

// Distances at which several consecutive nodes repeat, the most frequent first.
std::vector<uint32_t> LikelyPeriods(const std::vector<uint64_t>& words) {
  constexpr size_t kRow = 8;
  constexpr size_t kMost = 8;
  std::unordered_map<uint64_t, uint32_t> last;
  std::map<uint32_t, uint32_t> found;
  for (uint32_t i = 0; i + kRow <= words.size(); ++i) {
    uint64_t row = 0;
    for (size_t at = i; at < i + kRow; ++at) row = MixHash(row, words[at]);
    auto [before, added] = last.try_emplace(row, i);
    if (added) continue;
    ++found[i - before->second];
    before->second = i;
  }
  std::vector<std::pair<uint32_t, uint32_t>> by_count;
  for (const auto& [distance, count] : found) by_count.emplace_back(count, distance);
  std::ranges::sort(by_count, std::greater<>());
  std::vector<uint32_t> periods;
  for (const auto& [count, distance] : by_count) {
    if (periods.size() < kMost) periods.push_back(distance);
  }
  return periods;
}

void AddRuns(const std::vector<uint64_t>& words, uint32_t period, std::vector<LayerRun>& runs) {
  constexpr uint32_t kFewest = 3;
  auto size = static_cast<uint32_t>(words.size());
  uint32_t begin = 0;
  for (uint32_t i = 0; i + period <= size; ++i) {
    if (i + period < size && words[i] == words[i + period]) continue;
    const uint32_t count = (i - begin) / period + 1;
    if (count >= kFewest) runs.push_back({begin, period, count});
    begin = i + 1;
  }
}

}  // namespace

std::vector<LayerRun> FindEqualLayers(const Graph& graph) {
  const std::vector<uint64_t> words = Words(graph);
  std::vector<LayerRun> all;
  for (uint32_t period : LikelyPeriods(words)) AddRuns(words, period, all);
  auto by = [](const LayerRun& run) {
    return std::tuple(-int64_t{run.nodes} * run.count, run.nodes, run.first);
  };
  std::ranges::sort(all, {}, by);
  std::vector<LayerRun> runs;
  for (const LayerRun& run : all) {
    const bool free = std::ranges::all_of(runs, [&](const LayerRun& taken) {
      return run.end() <= taken.first || taken.end() <= run.first;
    });
    if (free) runs.push_back(run);
  }
  std::ranges::sort(runs, {}, &LayerRun::first);
  return runs;
}

std::vector<LayerPlace> PlacesIn(const std::vector<LayerRun>& runs, size_t node_count) {
  std::vector<LayerPlace> places(node_count);
  for (uint32_t r = 0; r < runs.size(); ++r) {
    for (uint32_t i = runs[r].first; i < runs[r].end(); ++i) {
      const uint32_t at = i - runs[r].first;
      places[i] = {r, at / runs[r].nodes, at % runs[r].nodes};
    }
  }
  return places;
}

}  // namespace heddle
