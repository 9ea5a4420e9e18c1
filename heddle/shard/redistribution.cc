#include "heddle/shard/redistribution.h"

#include <algorithm>
#include <optional>

#include "heddle/base/division.h"
#include "heddle/shard/axis_state.h"
#include "heddle/shard/redistribution_search.h"

namespace heddle {
namespace {

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
      if (IsSymbol(dims[d])) continue;
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

// The dimensions that are split at either end: no other is worth splitting on the way. Searches number them from 0, by the axes that
// split them in `from`, then in `to`: so that it does not matter which dimensions they are.
class Ends {
 public:
  Ends(const Placement& from, const Placement& to, size_t rank) : rank_(rank) {
    for (size_t d = 0; d < rank; ++d) {
      if (!from.split(d).empty() || !to.split(d).empty()) dims_.push_back(d);
    }
    auto first = [&](size_t d) {
      const Axes& axes = from.split(d).empty() ? to.split(d) : from.split(d);
      return std::pair(from.split(d).empty(), *std::ranges::min_element(axes));
    };
    std::ranges::sort(dims_, {}, first);
  }

  // Nothing if there are several, or none.
  std::optional<size_t> only() const {
    return dims_.size() == 1 ? std::optional(dims_[0]) : std::nullopt;
  }

  StepGraph Graph(const Dims& dims, PlacementWord start, PlacementWord goal,
                  const Mesh& mesh) const {
    // Prices only: an unknown size counts once for all ways.
    auto size_of = [&](size_t d) { return IsSymbol(dims[d]) ? 1 : dims[d]; };
    std::vector<int64_t> sizes;
    for (size_t d : dims_) sizes.push_back(size_of(d));
    int64_t rest = 1;
    for (size_t d = 0; d < rank_; ++d) {
      bool is_end = std::ranges::find(dims_, d) != dims_.end();
      if (!is_end && __builtin_mul_overflow(rest, size_of(d), &rest)) rest = INT64_MAX / 8;
    }
    return StepGraph(sizes, rest, UsedAxes(start | goal), mesh);
  }

  PlacementWord WordOf(const Placement& placement) const {
    Placement out;
    for (size_t d : dims_) out.splits.push_back(placement.split(d));
    out.partials = placement.partials;
    return *heddle::WordOf(out);
  }

  RedistributionStep StepOf(const StepGraph& graph, const StepGraph::Step& step) const {
    RedistributionStep out{.kind = step.kind, .over = step.over, .op = step.op};
    if (step.kind != StepKind::kAllReduce) out.dim = dims_[step.end];
    if (step.kind == StepKind::kAllToAll) out.concat_dim = dims_[step.concat_end];
    Placement to = PlacementOf(graph.word(step.to), dims_.size());
    out.to.splits.resize(rank_);
    for (size_t e = 0; e < dims_.size(); ++e) out.to.splits[dims_[e]] = to.split(e);
    out.to.partials = std::move(to.partials);
    out.to.Normalize();
    return out;
  }

 private:
  size_t rank_;
  std::vector<size_t> dims_;
};

// Nothing where too many placements would have to be looked at.
std::optional<std::vector<RedistributionStep>> CheapestSteps(const Placement& start,
                                                             const Placement& goal,
                                                             const Dims& dims, const Mesh& mesh,
                                                             ReduceOrder order) {
  Ends ends(start, goal, dims.size());
  PlacementWord from = ends.WordOf(start);
  PlacementWord to = ends.WordOf(goal);
  StepGraph graph = ends.Graph(dims, from, to, mesh);
  std::optional<std::vector<StepGraph::Step>> steps =
      RedistributionSearch(graph, from, UsedAxes(to), order).Run(to);
  if (!steps) return std::nullopt;
  std::vector<RedistributionStep> out;
  for (const StepGraph::Step& step : *steps) out.push_back(ends.StepOf(graph, step));
  return out;
}

// Slices may be over several axes, and leave a whole tensor.
std::optional<RedistributionStep> CheapestStep(const Placement& start, const Placement& goal,
                                               const Dims& dims, const Mesh& mesh) {
  Ends ends(start, goal, dims.size());
  PlacementWord from = ends.WordOf(start);
  PlacementWord to = ends.WordOf(goal);
  StepGraph graph = ends.Graph(dims, from, to, mesh);
  const StepGraph::Step* best = nullptr;
  uint32_t end = graph.NumberOf(to);
  for (const StepGraph::Step& step : graph.StepsFrom(graph.NumberOf(from))) {
    if (step.to != end || step.kind == StepKind::kSlice) continue;
    if (best == nullptr || step.moved < best->moved) best = &step;
  }
  if (best != nullptr) return ends.StepOf(graph, *best);
  std::optional<size_t> dim = ends.only();
  if (from != 0 || !dim || !goal.partials.empty()) return std::nullopt;
  return RedistributionStep{
      .kind = StepKind::kSlice, .over = goal.split(*dim), .dim = *dim, .to = goal};
}

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

TypeId LocalType(const Type& whole, const Placement& placement, const Mesh& mesh,
                 TypeTable& types) {
  Type part = whole;
  for (size_t d = 0; d < placement.splits.size(); ++d) {
    if (!placement.splits[d].empty())
      part.dims[d] = types.symbols().Chunk(part.dims[d], placement.splits[d], mesh);
  }
  return types.Intern(part);
}

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
  std::optional<std::vector<RedistributionStep>> steps =
      CheapestSteps(start, goal, common.Parts(dims, mesh), mesh, order);
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
  std::optional<RedistributionStep> step =
      CheapestStep(start, goal, common.Parts(dims, mesh), mesh);
  if (step) step->to = to;
  return step;
}

}  // namespace heddle
