#include "heddle/price/sim/explain/bounds.h"

#include <algorithm>

#include "heddle/price/sim/explain/movable.h"

namespace heddle::price {
namespace {

// Times at positions, with prefix additions and the overall maximum.
class SumTree {
 public:
  explicit SumTree(size_t size)
      : size_(std::max<size_t>(1, size)), most_(4 * size_, kNothing), add_(4 * size_) {}

  void Set(size_t at, Nanos value) { Set(1, 0, size_, at, value); }
  // Adds to all positions from 0 to `last`.
  void AddUpTo(size_t last, Nanos value) { Add(1, 0, size_, last + 1, value); }
  Nanos Most() const { return most_[1]; }

 private:
  static constexpr Nanos kNothing{INT64_MIN / 2};

  void Set(size_t node, size_t begin, size_t end, size_t at, Nanos value) {
    if (end - begin == 1) {
      most_[node] = value;
      return;
    }
    size_t middle = (begin + end) / 2;
    if (at < middle) {
      Set(2 * node, begin, middle, at, value - add_[node]);
    } else {
      Set(2 * node + 1, middle, end, at, value - add_[node]);
    }
    Renew(node);
  }
  void Add(size_t node, size_t begin, size_t end, size_t until, Nanos value) {
    if (until <= begin) return;
    if (until >= end) {
      most_[node] += value;
      add_[node] += value;
      return;
    }
    size_t middle = (begin + end) / 2;
    Add(2 * node, begin, middle, until, value);
    Add(2 * node + 1, middle, end, until, value);
    Renew(node);
  }
  void Renew(size_t node) {
    most_[node] = std::max(most_[2 * node], most_[2 * node + 1]) + add_[node];
  }

  size_t size_;
  std::vector<Nanos> most_;
  std::vector<Nanos> add_;
};

// A collective that can run after `from` nodes of the compute stream, and must finish before node
// `until` of it begins.
struct Window {
  size_t from;
  size_t until;
  Nanos time;
};

// The time by which a stream's collectives exceed the compute in their windows. Each sum is over
// windows within one stretch of compute. Stretches are disjoint, so their excesses add up.
Nanos Excess(const std::vector<Window>& windows, const std::vector<Nanos>& done) {
  std::vector<size_t> places;
  for (const Window& w : windows) {
    places.push_back(w.from);
    places.push_back(w.until);
  }
  std::ranges::sort(places);
  places.erase(std::unique(places.begin(), places.end()), places.end());
  auto number = [&](size_t place) {
    return static_cast<size_t>(std::ranges::lower_bound(places, place) - places.begin());
  };
  std::vector<std::vector<const Window*>> ending(places.size());
  for (const Window& w : windows) ending[number(w.until)].push_back(&w);
  // Indexed by begin of the last stretch: the excess so far, minus the compute before the stretch.
  SumTree tree(places.size());
  Nanos best;
  for (size_t i = 0; i < places.size(); ++i) {
    tree.Set(i, best + done[places[i]]);
    for (const Window* w : ending[i]) tree.AddUpTo(number(w->from), w->time);
    best = std::max(best, tree.Most() - done[places[i]]);
  }
  return best;
}

class Bounder {
 public:
  Bounder(const Graph& graph, const SimGraph& sim, const Timeline& timeline)
      : graph_(graph), sim_(sim), t_(timeline), movable_(FindMovable(graph)) {}

  LowerBounds Run() {
    LowerBounds bounds;
    bounds.compute = sim_.compute();
    std::vector<Nanos> by_stream(sim_.streams().size());
    for (const Task& task : sim_.tasks()) {
      if (task.kind == Task::Kind::kStart) by_stream[task.stream] += task.alone();
    }
    for (Nanos time : by_stream) bounds.stream = std::max(bounds.stream, time);
    bounds.path = LongestPath();
    bounds.windows = WindowBound();
    return bounds;
  }

 private:
  Nanos OwnTime(NodeId id) const {
    const Task& task = sim_[id];
    return task.kind == Task::Kind::kStart ? task.alone() : task.compute;
  }

  Nanos LongestPath() const {
    std::vector<Nanos> until(graph_.node_count());
    Nanos longest;
    for (NodeId id : graph_.nodes()) {
      Nanos begin;
      for (ValueId value : graph_.operands(id)) {
        NodeId producer = value ? graph_[value].producer : NodeId();
        if (producer) begin = std::max(begin, until[producer.index()]);
      }
      until[id.index()] = begin + OwnTime(id);
      longest = std::max(longest, until[id.index()]);
    }
    return longest;
  }

  // Whether it has a fixed position in the order of the compute stream.
  bool Computes(NodeId id) const { return sim_[id].compute.value > 0 && !movable_[id.index()]; }

  Nanos WindowBound() const {
    // The fixed nodes in order: the number of them before each node, and the work of the first n.
    std::vector<size_t> rank(graph_.node_count());
    std::vector<Nanos> done{sim_.around()};
    for (NodeId id : t_.order) {
      rank[id.index()] = done.size() - 1;
      if (Computes(id)) done.push_back(done.back() + sim_[id].compute);
    }
    // The number of fixed nodes before the earliest begin, and before the latest end.
    std::vector<size_t> from(graph_.node_count());
    std::vector<size_t> until(graph_.node_count(), done.size() - 1);
    for (NodeId id : graph_.nodes()) {
      for (ValueId value : graph_.operands(id)) {
        NodeId p = value ? graph_[value].producer : NodeId();
        if (!p) continue;
        size_t after = Computes(p) ? rank[p.index()] + 1 : from[p.index()];
        from[id.index()] = std::max(from[id.index()], after);
      }
    }
    for (size_t i = graph_.node_count(); i-- > 0;) {
      size_t before = Computes(NodeId(i)) ? rank[i] : until[i];
      for (ValueId value : graph_.operands(NodeId(i))) {
        NodeId p = value ? graph_[value].producer : NodeId();
        if (p) until[p.index()] = std::min(until[p.index()], before);
      }
    }
    std::vector<std::vector<Window>> windows(sim_.streams().size());
    for (NodeId id : graph_.nodes()) {
      const Task& task = sim_[id];
      if (task.kind == Task::Kind::kStart)
        windows[task.stream].push_back({from[id.index()], until[id.index()], task.alone()});
    }
    Nanos largest;
    for (const std::vector<Window>& of_stream : windows)
      largest = std::max(largest, Excess(of_stream, done));
    return done.back() + largest;
  }

  const Graph& graph_;
  const SimGraph& sim_;
  const Timeline& t_;
  std::vector<bool> movable_;
};

}  // namespace

LowerBounds FindLowerBounds(const Graph& graph, const SimGraph& sim, const Timeline& timeline) {
  return Bounder(graph, sim, timeline).Run();
}

}  // namespace heddle::price
