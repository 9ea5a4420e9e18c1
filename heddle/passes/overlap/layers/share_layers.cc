#include "heddle/passes/overlap/layers/share_layers.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "heddle/base/hash.h"

namespace heddle {
namespace {

using Role = StepShape::Role;

// What is worth to be called shared.
constexpr uint32_t kFewest = 3;

// By node.
std::vector<uint32_t> PositionsIn(std::span<const NodeId> order) {
  std::vector<uint32_t> position(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) position[order[i].index()] = i;
  return position;
}

// What a schedule has from the begin of a layer to that of the next.
struct Block {
  size_t first = 0;
  size_t last = 0;
};

// None where a layer has no begin, or the next begins before it. The last layer of a run has none.
std::optional<Block> BlockOf(const LayerWords& words, const std::vector<uint32_t>& position,
                             uint32_t run, uint32_t layer) {
  if (layer + 1 >= words.runs()[run].count) return std::nullopt;
  NodeId head = words.head(run, layer);
  NodeId next = words.head(run, layer + 1);
  if (!head || !next || position[head.index()] >= position[next.index()]) return std::nullopt;
  return Block{position[head.index()], position[next.index()]};
}

class LayerSharing {
 public:
  LayerSharing(const LayerWords& words, const StepShape& shape, const ShareOptions& options,
               Replay& replay)
      : words_(words),
        shape_(shape),
        options_(options),
        replay_(replay),
        position_(PositionsIn(replay.order())) {}

  // The layers from `first` to `last` of a run: as many as can share one schedule, and then those before and behind them.
  void Share(uint32_t run, uint32_t first, uint32_t last, int depth = 0) {
    SharedLayers best;
    std::vector<NodeId> best_order;
    const std::vector<NodeId> given = replay_.order();
    for (const SharedLayers& seed : Seeds(run, first, last, depth == 0)) {
      if (seed.count() == seed.period) MakeAlike(seed, first, last);
      SharedLayers grown = Grow(seed, first, last);
      if (best_order.empty() || grown.count() > best.count()) {
        best = grown;
        best_order = replay_.order();
      }
      Restore(given);
      if (best.count() * 2 > last - first + 1) break;
    }
    if (best_order.empty() || best.count() < kFewest * best.period) return;
    Restore(best_order);
    if (best.first >= first + kFewest) Share(run, first, best.first - 1, depth + 1);
    if (last >= best.last + kFewest) Share(run, best.last + 1, last, depth + 1);
  }

 private:
  // Layers whose blocks others may take over: of stretches that are equal already, and others.
  std::vector<SharedLayers> Seeds(uint32_t run, uint32_t first, uint32_t last, bool others) const {
    std::vector<SharedLayers> seeds;
    for (SharedLayers shared : FindShared(words_, replay_.order())) {
      shared.first = std::max(shared.first, first);
      shared.last = std::min(shared.last, last);
      const bool inside = shared.run == run && shared.first + shared.period <= shared.last;
      if (inside && seeds.size() < 2) seeds.push_back(shared);
    }
    if (!others) return seeds;
    const uint32_t count = last - first + 1;
    for (auto [quarter, period] : {std::pair(2U, 1U), {3U, 1U}, {1U, 1U}, {3U, 2U}}) {
      const uint32_t from = first + count * quarter / 4;
      if (from + period - 1 <= last) seeds.push_back({run, from, from + period - 1, period});
    }
    return seeds;
  }

  // Nodes of layers from `low` to `high` stand where those of the seed do: so many places behind the same product of their layers.
  void MakeAlike(const SharedLayers& seed, uint32_t least, uint32_t most) {
    constexpr uint32_t kReach = 3;
    const uint32_t low = seed.first - std::min(kReach, seed.first - least);
    const uint32_t high = std::min(most, seed.last + kReach);
    const std::vector<NodeId>& order = replay_.order();
    // By position: that of the last product.
    std::vector<uint32_t> product(order.size());
    for (uint32_t i = 0; i < order.size(); ++i)
      product[i] = words_.is_product(order[i]) || i == 0 ? i : product[i - 1];
    std::vector<uint64_t> wish(order.size());
    for (uint32_t i = 0; i < order.size(); ++i)
      wish[order[i].index()] = uint64_t{product[i]} << 32 | (i - product[i]);
    size_t first = order.size();
    size_t last = 0;
    for (NodeId node : order) {
      const LayerWords::Word& word = words_.of(node);
      if (word.run != seed.run || word.layer < low || word.layer > high) continue;
      const int64_t ahead = int64_t{word.layer} - seed.first;
      const int64_t period = seed.period;
      const int64_t shift =
          (ahead >= 0 ? ahead / period : -((period - 1 - ahead) / period)) * period;
      const NodeId like = words_.Shifted(node, -shift);
      if (!like) continue;
      const uint32_t at = position_[like.index()];
      const NodeId behind = words_.Shifted(order[product[at]], shift);
      if (!behind) continue;
      const uint32_t to = position_[behind.index()];
      wish[node.index()] = uint64_t{to} << 32 | (at - product[at]);
      first = std::min<size_t>(first, std::min(to, position_[node.index()]));
      last = std::max<size_t>(last, std::max(to, position_[node.index()]) + 1);
    }
    if (first < last) Try(first, Legal(first, last, wish));
  }

  // What stands from `first` up to `last`, by wishes: of those that may come next, always the one that wishes to stand first.
  std::vector<NodeId> Legal(size_t first, size_t last, const std::vector<uint64_t>& wish) const {
    const std::vector<NodeId>& order = replay_.order();
    std::vector<uint32_t> open(last - first);
    std::vector<uint32_t> next_fixed(order.size(), UINT32_MAX);
    uint32_t fixed = UINT32_MAX;
    using Ready = std::pair<uint64_t, uint32_t>;
    std::vector<Ready> heap;
    for (size_t i = first; i < last; ++i) {
      const uint32_t node = order[i].index();
      for (uint32_t before : shape_.before(node)) open[i - first] += position_[before] >= first;
      if (IsFixed(node)) {
        if (fixed != UINT32_MAX) {
          next_fixed[fixed] = node;
          ++open[i - first];
        }
        fixed = node;
      }
      if (open[i - first] == 0) heap.emplace_back(wish[node], node);
    }
    std::ranges::make_heap(heap, std::greater<>());
    std::vector<NodeId> nodes;
    auto done = [&](uint32_t later) {
      if (position_[later] >= last || --open[position_[later] - first] > 0) return;
      heap.emplace_back(wish[later], later);
      std::ranges::push_heap(heap, std::greater<>());
    };
    while (!heap.empty()) {
      std::ranges::pop_heap(heap, std::greater<>());
      const uint32_t node = heap.back().second;
      heap.pop_back();
      nodes.emplace_back(node);
      for (uint32_t later : shape_.after(node)) done(later);
      if (next_fixed[node] != UINT32_MAX) done(next_fixed[node]);
    }
    return nodes;
  }

  bool IsFixed(uint32_t node) const {
    return (shape_.role(node) == Role::kAnchor && !shape_.moves(node)) ||
           (options_.strict && shape_.role(node) == Role::kStart);
  }

  // Writes blocks to the layers behind and before them, as far as that goes.
  SharedLayers Grow(SharedLayers grown, uint32_t first, uint32_t last) {
    const uint32_t period = grown.period;
    const uint32_t run = grown.run;
    while (grown.last < last && MakeLater(run, grown.last + 1 - period, grown.last + 1))
      ++grown.last;
    while (grown.first > first && MakeEarlier(run, grown.first - 1 + period, grown.first - 1))
      --grown.first;
    return grown;
  }

  // The block of one layer as it would be for another; empty if some of it is not there.
  std::vector<NodeId> Wanted(uint32_t run, uint32_t from, uint32_t to) const {
    std::optional<Block> block = BlockOf(words_, position_, run, from);
    std::vector<NodeId> wanted;
    for (size_t i = block ? block->first : 0; block && i < block->last; ++i) {
      const NodeId node = words_.Shifted(replay_.order()[i], int64_t{to} - from);
      if (!node || words_.of(node).run != run) return {};
      wanted.push_back(node);
    }
    return wanted;
  }

  // Blocks before this one stand.
  bool MakeLater(uint32_t run, uint32_t from, uint32_t layer) {
    const std::vector<NodeId> wanted = Wanted(run, from, layer);
    if (wanted.empty()) return false;
    const size_t first = position_[wanted[0].index()];
    size_t last = first;
    for (NodeId node : wanted) {
      if (position_[node.index()] < first) return false;
      last = std::max<size_t>(last, position_[node.index()] + 1);
    }
    std::vector<NodeId> nodes = wanted;
    AddOthers(first, last, wanted, nodes);
    return Try(first, nodes);
  }

  // Blocks behind this one stand.
  bool MakeEarlier(uint32_t run, uint32_t from, uint32_t layer) {
    const std::vector<NodeId> wanted = Wanted(run, from, layer);
    std::optional<Block> block = BlockOf(words_, position_, run, layer);
    if (wanted.empty() || !block) return false;
    size_t first = block->first;
    for (NodeId node : wanted) {
      if (position_[node.index()] >= block->last) return false;
      first = std::min<size_t>(first, position_[node.index()]);
    }
    std::vector<NodeId> nodes;
    AddOthers(first, block->last, wanted, nodes);
    nodes.insert(nodes.end(), wanted.begin(), wanted.end());
    return Try(first, nodes);
  }

  // What stands from `first` up to `last` and is not wanted, in its order.
  void AddOthers(size_t first, size_t last, const std::vector<NodeId>& wanted,
                 std::vector<NodeId>& nodes) {
    std::vector<bool> taken(last - first);
    for (NodeId node : wanted) taken[position_[node.index()] - first] = true;
    for (size_t i = first; i < last; ++i) {
      if (!taken[i - first]) nodes.push_back(replay_.order()[i]);
    }
  }

  // Puts nodes in the place of those that stand from `first`. False, and all as it was, where that may not be.
  bool Try(size_t first, const std::vector<NodeId>& nodes) {
    auto at = replay_.order().begin() + static_cast<ptrdiff_t>(first);
    const std::vector<NodeId> given(at, at + static_cast<ptrdiff_t>(nodes.size()));
    if (given == nodes) return true;
    Place(first, nodes);
    if (IsOrder(first, nodes)) {
      const Outcome& outcome = replay_.Reorder(first, nodes);
      if (outcome.makespan <= options_.longest && outcome.peak <= options_.cap) return true;
      replay_.Reorder(first, given);
    }
    Place(first, given);
    return false;
  }

  void Place(size_t first, const std::vector<NodeId>& nodes) {
    for (size_t i = 0; i < nodes.size(); ++i)
      position_[nodes[i].index()] = static_cast<uint32_t>(first + i);
  }

  // Whether nodes, which stand in their places, come behind what they need, and those that may not move in their order.
  bool IsOrder(size_t first, const std::vector<NodeId>& nodes) const {
    uint32_t last_fixed = 0;
    uint32_t last_start = 0;
    for (size_t i = 0; i < nodes.size(); ++i) {
      const uint32_t node = nodes[i].index();
      for (uint32_t before : shape_.before(node)) {
        if (position_[before] > first + i) return false;
      }
      if (shape_.role(node) == Role::kAnchor && !shape_.moves(node)) {
        if (node < last_fixed) return false;
        last_fixed = node;
      }
      if (options_.strict && shape_.role(node) == Role::kStart) {
        if (node < last_start) return false;
        last_start = node;
      }
    }
    return true;
  }

  void Restore(const std::vector<NodeId>& order) {
    if (order == replay_.order()) return;
    replay_.Run(order);
    Place(0, order);
  }

  const LayerWords& words_;
  const StepShape& shape_;
  const ShareOptions& options_;
  Replay& replay_;
  // By node.
  std::vector<uint32_t> position_;
};

// Equal for blocks that are the same but for the number of the layer.
uint64_t HashOf(const LayerWords& words, std::span<const NodeId> order, const Block& block,
                uint32_t run, uint32_t layer) {
  uint64_t hash = 0;
  for (size_t i = block.first; i < block.last; ++i) {
    const LayerWords::Word& word = words.of(order[i]);
    // What is of no layer is like nothing else.
    const bool outside = word.run != run;
    hash = MixHash(hash, outside ? order[i].index() : word.slot);
    hash = MixHash(hash, outside ? UINT64_MAX : uint64_t{word.layer} - layer);
  }
  return hash;
}

}  // namespace

std::vector<SharedLayers> FindShared(const LayerWords& words, std::span<const NodeId> order) {
  constexpr uint32_t kLongestPeriod = 3;
  const std::vector<uint32_t> position = PositionsIn(order);
  std::vector<SharedLayers> found;
  for (uint32_t run = 0; run < words.runs().size(); ++run) {
    std::vector<uint64_t> hashes;
    for (uint32_t layer = 0; layer + 1 < words.runs()[run].count; ++layer) {
      std::optional<Block> block = BlockOf(words, position, run, layer);
      hashes.push_back(block ? HashOf(words, order, *block, run, layer) : layer);
    }
    for (uint32_t period = 1; period <= kLongestPeriod; ++period) {
      uint32_t first = 0;
      for (uint32_t layer = period; layer <= hashes.size(); ++layer) {
        if (layer < hashes.size() && hashes[layer] == hashes[layer - period]) continue;
        if (layer - first >= 2 * period) found.push_back({run, first, layer - 1, period});
        first = layer + 1 - period;
      }
    }
  }
  std::ranges::stable_sort(found, std::greater<>(), &SharedLayers::count);
  std::vector<SharedLayers> shared;
  for (const SharedLayers& one : found) {
    const bool free = std::ranges::all_of(shared, [&](const SharedLayers& taken) {
      return one.run != taken.run || one.last < taken.first || taken.last < one.first;
    });
    if (free) shared.push_back(one);
  }
  return shared;
}

void ShareLayers(const LayerWords& words, const StepShape& shape, const ShareOptions& options,
                 Replay& replay) {
  LayerSharing sharing(words, shape, options, replay);
  for (uint32_t run = 0; run < words.runs().size(); ++run)
    sharing.Share(run, 0, words.runs()[run].count - 2);
}

}  // namespace heddle
