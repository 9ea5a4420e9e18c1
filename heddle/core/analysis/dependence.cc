#include "heddle/core/analysis/dependence.h"

#include <algorithm>
#include <array>

#include "heddle/core/analysis/launch.h"

namespace heddle {
namespace {

using Interval = CollectiveDependence::Interval;
constexpr uint32_t kNone = UINT32_MAX;

// By node: its place among the collectives, or kNone.
std::vector<uint32_t> PlacesOf(const std::vector<NodeId>& collectives, size_t nodes) {
  std::vector<uint32_t> places(nodes, kNone);
  for (uint32_t c = 0; c < collectives.size(); ++c) places[collectives[c].index()] = c;
  return places;
}

// By collective: its parent in the tree, or kNone. One walk from the end of the graph to its beginning.
std::vector<uint32_t> ParentsOf(const Graph& graph, const std::vector<NodeId>& collectives,
                                const std::vector<uint32_t>& places) {
  // By node: which of the next collectives that need it would be the parent. The upper half is the number of collectives
  // on its longest way to the end, itself included; the lower half is its place. Between equals the last one wins, so that
  // the gathers of all layers get one parent, and the gradients of each layer need an interval of them.
  std::vector<uint64_t> next(graph.node_count());
  std::vector<uint32_t> parents(collectives.size());
  for (size_t i = graph.node_count(); i-- > 0;) {
    uint64_t best = next[i];
    if (uint32_t c = places[i]; c != kNone) {
      parents[c] = best == 0 ? kNone : static_cast<uint32_t>(best);
      best = ((best >> 32) + 1) << 32 | c;
    }
    if (best == 0) continue;
    for (ValueId value : graph.operands(NodeId(i))) {
      NodeId producer = value ? graph[value].producer : NodeId();
      if (producer) next[producer.index()] = std::max(next[producer.index()], best);
    }
  }
  return parents;
}

// Numbers in postorder, with children in execution order. A parent runs after its children, so no recursion is needed.
std::vector<uint32_t> Postorder(const std::vector<uint32_t>& parents) {
  size_t n = parents.size();
  std::vector<uint32_t> size(n, 1);
  for (size_t c = 0; c < n; ++c) {
    if (parents[c] != kNone) size[parents[c]] += size[c];
  }
  // From the last collective to the first, each takes the end of what is left of its parent's numbers.
  std::vector<uint32_t> numbers(n);
  std::vector<uint32_t> left(n);
  auto left_of_roots = static_cast<uint32_t>(n);
  for (size_t c = n; c-- > 0;) {
    uint32_t& end = parents[c] == kNone ? left_of_roots : left[parents[c]];
    numbers[c] = end - 1;
    left[c] = end - 1;
    end -= size[c];
  }
  return numbers;
}

// Sets of numbers, as ascending intervals that do not touch. A union is the same as one of its two parts more often than not.
class IntervalSets {
 public:
  using SetId = uint32_t;
  static constexpr SetId kEmpty = 0;

  // Gives up after looking at `most` intervals. Answers are wrong from then on.
  explicit IntervalSets(size_t most) : most_(most), begin_{0, 0} {}

  bool gave_up() const { return looked_at_ > most_; }
  std::pair<uint32_t, uint32_t> range(SetId id) const { return {begin_[id], begin_[id + 1]}; }
  std::vector<Interval> TakeIntervals() { return std::move(intervals_); }

  SetId Union(SetId a, SetId b) {
    if (a == b || b == kEmpty || gave_up()) return a;
    if (a == kEmpty) return b;
    Made& made = made_[(a * 31 + b) % made_.size()];
    if (made.a != a || made.b != b) made = {a, b, Merge(a, b)};
    return made.set;
  }

  SetId With(SetId a, uint32_t number) {
    intervals_.push_back({number, number + 1});
    begin_.push_back(static_cast<uint32_t>(intervals_.size()));
    SetId single = static_cast<SetId>(begin_.size() - 2);
    return a == kEmpty ? single : Merge(a, single);
  }

 private:
  struct Made {
    SetId a = 0;
    SetId b = 0;
    SetId set = 0;
  };

  SetId Merge(SetId a, SetId b) {
    auto [x, x_end] = range(a);
    auto [y, y_end] = range(b);
    looked_at_ += x_end - x + y_end - y;
    size_t begin = intervals_.size();
    while (x < x_end || y < y_end) {
      bool take_x = y == y_end || (x < x_end && intervals_[x].begin <= intervals_[y].begin);
      Interval next = intervals_[take_x ? x++ : y++];
      if (intervals_.size() > begin && next.begin <= intervals_.back().end) {
        intervals_.back().end = std::max(intervals_.back().end, next.end);
      } else {
        intervals_.push_back(next);
      }
    }
    for (SetId same : {a, b}) {
      auto [from, to] = range(same);
      if (!std::equal(intervals_.begin() + from, intervals_.begin() + to,
                      intervals_.begin() + static_cast<ptrdiff_t>(begin), intervals_.end()))
        continue;
      intervals_.resize(begin);
      return same;
    }
    begin_.push_back(static_cast<uint32_t>(intervals_.size()));
    return static_cast<SetId>(begin_.size() - 2);
  }

  size_t most_;
  size_t looked_at_ = 0;
  // By set: where its intervals begin. They end where those of the next set begin.
  std::vector<uint32_t> begin_;
  std::vector<Interval> intervals_;
  // Recent unions, because neighbours in a graph often ask for the same one.
  std::array<Made, 256> made_;
};

}  // namespace

CollectiveDependence::CollectiveDependence(const Graph& graph) {
  for (NodeId id : graph.nodes()) {
    if (IsLaunch(graph, id)) collectives_.push_back(id);
  }
  std::vector<uint32_t> places = PlacesOf(collectives_, graph.node_count());
  number_ = Postorder(ParentsOf(graph, collectives_, places));
  range_.resize(collectives_.size());
  IntervalSets sets(kWorkPerNode * graph.node_count());
  std::vector<IntervalSets::SetId> needed(graph.node_count(), IntervalSets::kEmpty);
  for (NodeId id : graph.nodes()) {
    IntervalSets::SetId set = IntervalSets::kEmpty;
    for (ValueId value : graph.operands(id)) {
      NodeId producer = value ? graph[value].producer : NodeId();
      if (producer) set = sets.Union(set, needed[producer.index()]);
    }
    if (uint32_t c = places[id.index()]; c != kNone) {
      range_[c] = sets.range(set);
      set = sets.With(set, number_[c]);
    }
    needed[id.index()] = set;
    if (sets.gave_up()) break;
  }
  if (!sets.gave_up()) {
    intervals_ = sets.TakeIntervals();
    return;
  }
  producers_.resize(graph.node_count());
  for (NodeId id : graph.nodes()) {
    for (ValueId value : graph.operands(id)) {
      if (value && graph[value].producer) producers_[id.index()].push_back(graph[value].producer);
    }
  }
}

bool CollectiveDependence::Depends(size_t later, size_t earlier) const {
  if (later <= earlier) return false;
  if (!is_indexed()) return Search(collectives_[later], collectives_[earlier]);
  auto [from, to] = range_[later];
  auto begin = intervals_.begin() + from;
  auto after = std::upper_bound(begin, intervals_.begin() + to, number_[earlier],
                                [](uint32_t n, const Interval& i) { return n < i.begin; });
  return after != begin && number_[earlier] < std::prev(after)->end;
}

bool CollectiveDependence::Search(NodeId later, NodeId earlier) const {
  std::vector<bool> seen(later.index() - earlier.index());
  std::vector<NodeId> open{later};
  while (!open.empty()) {
    NodeId id = open.back();
    open.pop_back();
    for (NodeId producer : producers_[id.index()]) {
      if (producer == earlier) return true;
      if (producer < earlier || seen[producer.index() - earlier.index()]) continue;
      seen[producer.index() - earlier.index()] = true;
      open.push_back(producer);
    }
  }
  return false;
}

}  // namespace heddle
