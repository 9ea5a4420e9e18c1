#include "heddle/shard/redistribution.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "heddle/shard/axis_state.h"

namespace heddle {
namespace {

// A placement as a search key: splits of every dimension, then partials.
using Key = std::vector<uint64_t>;

Key KeyOf(const Placement& placement, size_t rank) {
  Key key;
  for (size_t d = 0; d < rank; ++d) key.push_back(placement.split(d).bits());
  for (const Partial& partial : placement.partials)
    key.push_back(uint64_t{partial.axis} << 8 | static_cast<uint64_t>(partial.op));
  return key;
}

Axes Prefix(const Axes& axes, size_t n) {
  Axes out;
  for (size_t i = 0; i < n; ++i) out.Add(axes[i]);
  return out;
}
Axes Suffix(const Axes& axes, size_t from) {
  Axes out;
  for (size_t i = from; i < axes.size(); ++i) out.Add(axes[i]);
  return out;
}

int64_t CeilDiv(int64_t a, int64_t b) { return a / b + (a % b != 0); }

// Dijkstra's search over placements.
class Search {
 public:
  Search(const Placement& from, const Placement& to, const Dims& dims, const Mesh& mesh,
         ReduceOrder order)
      : to_(to), dims_(dims), mesh_(mesh), order_(order) {
    for (size_t d = 0; d < dims.size(); ++d) {
      if (!from.split(d).empty() || !to.split(d).empty()) ends_.push_back(d);
    }
    Reach(from, {}, {}, nullptr);
  }

  // Nothing if there is no way, or if too many placements would have to be looked at.
  std::optional<std::vector<RedistributionStep>> Run() {
    Key goal = KeyOf(to_, dims_.size());
    while (!open_.empty() && reached_.size() < kMostPlacements) {
      auto [price, key] = *open_.begin();
      open_.erase(open_.begin());
      if (key == goal) return PathTo(key);
      const Placement placement = reached_.at(key).placement;
      Scatter(placement, price, key);
      Reduce(placement, price, key);
      Gather(placement, price, key);
      Slice(placement, price, key);
    }
    return std::nullopt;
  }

  // The one step to the goal, or nothing.
  std::optional<RedistributionStep> RunOnce() {
    auto [price, key] = *open_.begin();
    const Placement placement = reached_.at(key).placement;
    Scatter(placement, price, key);
    Reduce(placement, price, key);
    Gather(placement, price, key);
    auto found = reached_.find(KeyOf(to_, dims_.size()));
    if (found != reached_.end() && !found->second.is_start) return found->second.step;
    // Slices go by axes, of which one step may have several.
    if (!placement.replicated() || ends_.size() != 1 || !to_.partials.empty()) return std::nullopt;
    return RedistributionStep{
        .kind = StepKind::kSlice, .over = to_.splits[ends_[0]], .dim = ends_[0], .to = to_};
  }

 private:
  struct Reached {
    Placement placement;
    RedistributionPrice price;
    RedistributionStep step;
    Key before;
    bool is_start = false;
  };

  std::vector<RedistributionStep> PathTo(const Key& key) const {
    std::vector<RedistributionStep> steps;
    for (const Reached* at = &reached_.at(key); !at->is_start; at = &reached_.at(at->before))
      steps.push_back(at->step);
    std::reverse(steps.begin(), steps.end());
    // Slices of one dimension, one axis after the other, are one slice.
    std::vector<RedistributionStep> out;
    for (RedistributionStep& step : steps) {
      bool joins = !out.empty() && step.kind == StepKind::kSlice &&
                   out.back().kind == StepKind::kSlice && out.back().dim == step.dim;
      if (joins) step.over = Joined(out.back().over, step.over);
      if (joins) out.pop_back();
      out.push_back(std::move(step));
    }
    return out;
  }

  void Reach(const Placement& placement, RedistributionPrice price, RedistributionStep step,
             const Key* before) {
    Key key = KeyOf(placement, dims_.size());
    auto found = reached_.find(key);
    if (found != reached_.end()) {
      if (found->second.price <= price) return;
      open_.erase({found->second.price, key});
    }
    step.to = placement;
    reached_[key] = {placement, price, std::move(step), before ? *before : Key(),
                     before == nullptr};
    open_.insert({price, std::move(key)});
  }

  void Take(const Placement& placement, RedistributionPrice price, int64_t moved,
            RedistributionStep step, const Key& before) {
    Placement normal = placement;
    normal.Normalize();
    price.collectives += step.is_collective() ? 1 : 0;
    price.moved += moved;
    price.steps += 1;
    Reach(normal, price, std::move(step), &before);
  }

  Placement Sized(Placement placement) const {
    placement.splits.resize(dims_.size());
    return placement;
  }

  int64_t Elements(const Placement& placement) const {
    return LocalElements(dims_, placement, mesh_);
  }
  int64_t Share(int64_t elements, const Axes& over) const {
    return elements - CeilDiv(elements, mesh_.Size(over));
  }

  // The innermost axes of a dimension go away, or to another dimension.
  void Gather(const Placement& placement, RedistributionPrice price, const Key& key) {
    for (size_t d = 0; d < placement.splits.size(); ++d) {
      Axes axes = placement.splits[d];
      for (size_t from = 0; from < axes.size(); ++from) {
        Axes over = Suffix(axes, from);
        Placement next = Sized(placement);
        next.splits[d] = Prefix(axes, from);
        Take(next, price, Elements(next) - Elements(placement),
             {.kind = StepKind::kAllGather, .over = over, .dim = d}, key);
        for (size_t e : ends_) {
          if (e == d) continue;
          Placement moved = next;
          moved.splits[e] = Joined(moved.splits[e], over);
          Take(moved, price, Share(Elements(placement), over),
               {.kind = StepKind::kAllToAll, .over = over, .dim = e, .concat_dim = d}, key);
        }
      }
    }
  }

  // All ordered choices of axes that are partial in the same way.
  template <typename Visit>
  void ForEachPartialList(const Placement& placement, const Visit& visit) {
    std::vector<Axes> lists{Axes()};
    for (size_t at = 0; at < lists.size(); ++at) {
      for (const Partial& partial : placement.partials) {
        Axes list = lists[at];
        bool same_op = list.empty() || OpOf(placement, list[0]) == partial.op;
        if (same_op && list.Add(partial.axis)) lists.push_back(list);
      }
    }
    for (size_t at = 1; at < lists.size(); ++at) visit(lists[at], OpOf(placement, lists[at][0]));
  }
  static ReduceOp OpOf(const Placement& placement, AxisId axis) {
    for (const Partial& partial : placement.partials) {
      if (partial.axis == axis) return partial.op;
    }
    return ReduceOp::kSum;
  }
  static Placement Without(const Placement& placement, const Axes& axes) {
    Placement out = placement;
    std::erase_if(out.partials, [&](const Partial& p) { return axes.contains(p.axis); });
    return out;
  }

  void Scatter(const Placement& placement, RedistributionPrice price, const Key& key) {
    if (order_ == ReduceOrder::kReduceFirst && MustReduce(placement)) return;
    ForEachPartialList(placement, [&](const Axes& over, ReduceOp op) {
      if (order_ != ReduceOrder::kFewest &&
          !std::ranges::all_of(over, [&](AxisId a) { return EndsSplit(a); }))
        return;
      for (size_t d : ends_) {
        Placement next = Sized(Without(placement, over));
        next.splits[d] = Joined(next.splits[d], over);
        Take(next, price, Elements(placement) - Elements(next),
             {.kind = StepKind::kReduceScatter, .over = over, .dim = d, .op = op}, key);
      }
    });
  }

  void Reduce(const Placement& placement, RedistributionPrice price, const Key& key) {
    ForEachPartialList(placement, [&](const Axes& over, ReduceOp op) {
      if (!std::is_sorted(over.begin(), over.end())) return;
      if (order_ != ReduceOrder::kFewest &&
          std::ranges::any_of(over, [&](AxisId a) { return EndsSplit(a); }))
        return;
      Take(Without(placement, over), price, 2 * Share(Elements(placement), over),
           {.kind = StepKind::kAllReduce, .over = over, .op = op}, key);
    });
  }

  // Whether some partial axis ends replicated.
  bool MustReduce(const Placement& placement) const {
    return std::ranges::any_of(placement.partials,
                               [&](const Partial& partial) { return !EndsSplit(partial.axis); });
  }
  bool EndsSplit(AxisId axis) const {
    return std::ranges::any_of(to_.splits, [&](const Axes& axes) { return axes.contains(axis); });
  }

  // An axis that nothing uses and the goal splits. Not only where the goal has it: on the way, what is cut already is less to
  // move.
  void Slice(const Placement& placement, RedistributionPrice price, const Key& key) {
    Axes used;
    for (const Axes& axes : placement.splits) used = Joined(used, axes);
    for (const Partial& partial : placement.partials) used.Add(partial.axis);
    for (const Axes& axes : to_.splits) {
      for (AxisId axis : axes) {
        if (used.contains(axis)) continue;
        for (size_t d : ends_) {
          Placement next = Sized(placement);
          next.splits[d].Add(axis);
          Take(next, price, 0, {.kind = StepKind::kSlice, .over = Axes(axis), .dim = d}, key);
        }
      }
    }
  }

  const Placement& to_;
  const Dims& dims_;
  const Mesh& mesh_;
  ReduceOrder order_;
  // Dimensions that are split at either end: no other is worth splitting on the way.
  std::vector<size_t> ends_;
  std::map<Key, Reached> reached_;
  std::set<std::pair<RedistributionPrice, Key>> open_;
  static constexpr size_t kMostPlacements = 20'000;
};

// What both placements share and no step has to touch: common outermost axes of each dimension, equal pending reductions.
struct Common {
  std::vector<Axes> prefixes;
  std::vector<Partial> partials;

  Common(const Placement& from, const Placement& to, size_t rank) : prefixes(rank) {
    for (size_t d = 0; d < rank; ++d) {
      Axes a = from.split(d);
      Axes b = to.split(d);
      for (size_t i = 0; i < std::min(a.size(), b.size()) && a[i] == b[i]; ++i)
        prefixes[d].Add(a[i]);
    }
    for (const Partial& partial : from.partials) {
      if (std::ranges::find(to.partials, partial) != to.partials.end()) partials.push_back(partial);
    }
  }
  Placement Removed(const Placement& placement) const {
    Placement out;
    for (size_t d = 0; d < prefixes.size(); ++d)
      out.splits.push_back(Suffix(placement.split(d), prefixes[d].size()));
    for (const Partial& partial : placement.partials) {
      if (std::ranges::find(partials, partial) == partials.end()) out.partials.push_back(partial);
    }
    out.Normalize();
    return out;
  }
  // The sizes that are left to move.
  Dims Parts(Dims dims, const Mesh& mesh) const {
    for (size_t d = 0; d < dims.size(); ++d) {
      for (AxisId axis : prefixes[d]) dims[d] = CeilDiv(dims[d], mesh[axis].size);
    }
    return dims;
  }
  Placement Restored(const Placement& placement) const {
    Placement out = placement;
    out.splits.resize(prefixes.size());
    for (size_t d = 0; d < prefixes.size(); ++d) out.splits[d] = Joined(prefixes[d], out.splits[d]);
    out.partials.insert(out.partials.end(), partials.begin(), partials.end());
    std::ranges::sort(out.partials, {}, &Partial::axis);
    out.Normalize();
    return out;
  }
};

// Reduce everything, gather everything, cut: never wrong, rarely short.
std::vector<RedistributionStep> DirectPath(const Placement& from, const Placement& to,
                                           size_t rank) {
  std::vector<RedistributionStep> steps;
  Placement at = from;
  at.splits.resize(rank);
  while (!at.partials.empty()) {
    RedistributionStep step{.kind = StepKind::kAllReduce, .op = at.partials[0].op};
    for (const Partial& partial : at.partials) {
      if (partial.op == step.op) step.over.Add(partial.axis);
    }
    std::erase_if(at.partials, [&](const Partial& partial) { return partial.op == step.op; });
    step.to = at;
    steps.push_back(step);
  }
  for (size_t d = 0; d < rank; ++d) {
    if (at.splits[d].empty()) continue;
    RedistributionStep step{.kind = StepKind::kAllGather, .over = at.splits[d], .dim = d};
    at.splits[d] = Axes();
    step.to = at;
    steps.push_back(step);
  }
  for (size_t d = 0; d < rank; ++d) {
    if (to.split(d).empty()) continue;
    at.splits[d] = to.split(d);
    steps.push_back({.kind = StepKind::kSlice, .over = to.split(d), .dim = d, .to = at});
  }
  for (RedistributionStep& step : steps) step.to.Normalize();
  return steps;
}

// The axes over which a replicated number or vector has to become a pending sum; nothing if something else would have to.
std::optional<Axes> Forgotten(const Placement& start, const Placement& goal, const Dims& dims) {
  Axes axes;
  for (const Partial& partial : goal.partials) {
    bool replicated = StateOn(start, partial.axis).use == AxisUse::kReplicated;
    bool small = IsOneElement(dims) || dims.size() == 1;
    if (!small || !replicated || partial.op != ReduceOp::kSum) return std::nullopt;
    axes.Add(partial.axis);
  }
  return axes;
}

}  // namespace

int64_t LocalElements(const Dims& dims, const Placement& placement, const Mesh& mesh) {
  int64_t elements = 1;
  for (size_t d = 0; d < dims.size(); ++d) {
    // Prices only: an unknown size counts once for all ways.
    int64_t size = IsSymbol(dims[d]) ? 1 : dims[d];
    for (AxisId axis : placement.split(d)) size = CeilDiv(size, mesh[axis].size);
    if (__builtin_mul_overflow(elements, size, &elements)) return INT64_MAX / 8;
  }
  return std::min(elements, INT64_MAX / 8);
}

RedistributionPrice PriceOf(const Placement& from, std::span<const RedistributionStep> steps,
                            const Dims& dims, const Mesh& mesh) {
  RedistributionPrice price;
  int64_t before = LocalElements(dims, from, mesh);
  for (const RedistributionStep& step : steps) {
    int64_t after = LocalElements(dims, step.to, mesh);
    int64_t share = before - CeilDiv(before, mesh.Size(step.over));
    switch (step.kind) {
      case StepKind::kAllGather: price.moved += after - before; break;
      case StepKind::kReduceScatter: price.moved += before - after; break;
      case StepKind::kAllReduce: price.moved += 2 * share; break;
      case StepKind::kAllToAll: price.moved += share; break;
      case StepKind::kSlice:
      case StepKind::kForget: break;
    }
    price.collectives += step.is_collective() ? 1 : 0;
    price.steps += 1;
    before = after;
  }
  return price;
}

Result<std::vector<RedistributionStep>> PlanRedistribution(const Placement& from,
                                                           const Placement& to, const Dims& dims,
                                                           const Mesh& mesh, ReduceOrder order) {
  Common common(from, to, dims.size());
  Placement start = common.Removed(from);
  Placement goal = common.Removed(to);
  std::optional<Axes> forgotten = Forgotten(start, goal, dims);
  if (!forgotten) {
    return Error(Diag::kRedistribution, "no collectives lead from {} to {}",
                 FormatPlacement(from, dims.size(), mesh), FormatPlacement(to, dims.size(), mesh));
  }
  goal.partials.clear();
  Dims parts = common.Parts(dims, mesh);
  auto steps = Search(start, goal, parts, mesh, order).Run();
  if (!steps) steps = DirectPath(start, goal, dims.size());
  for (RedistributionStep& step : *steps) step.to = common.Restored(step.to);
  if (!forgotten->empty())
    steps->push_back({.kind = StepKind::kForget, .over = *forgotten, .to = to});
  return std::move(*steps);
}

std::optional<RedistributionStep> OneStep(const Placement& from, const Placement& to,
                                          const Dims& dims, const Mesh& mesh) {
  Common common(from, to, dims.size());
  Placement start = common.Removed(from);
  Placement goal = common.Removed(to);
  std::optional<Axes> forgotten = Forgotten(start, goal, dims);
  if (forgotten && !forgotten->empty()) {
    goal.partials.clear();
    if (start != goal) return std::nullopt;
    return RedistributionStep{.kind = StepKind::kForget, .over = *forgotten, .to = to};
  }
  Dims parts = common.Parts(dims, mesh);
  std::optional<RedistributionStep> step =
      Search(start, goal, parts, mesh, ReduceOrder::kFewest).RunOnce();
  if (step) step->to = to;
  return step;
}

}  // namespace heddle
