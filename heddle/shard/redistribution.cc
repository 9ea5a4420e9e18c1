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
  return ElementsOfPart(dims, mesh, [&](size_t d) { return placement.split(d); });
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

namespace {

// `search` finds steps between placements that have nothing in common, or nothing.
template <typename Search>
Result<std::vector<RedistributionStep>> PlanBy(const Placement& from, const Placement& to,
                                               const Dims& dims, const Mesh& mesh,
                                               const Search& search) {
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
      search(start, goal, common.Parts(dims, mesh));
  if (!steps) steps = DirectPath(start, goal, dims.size());
  for (RedistributionStep& step : *steps) step.to = common.Restored(step.to);
  if (!forgotten->empty())
    steps->push_back({.kind = StepKind::kForget, .over = *forgotten, .to = to});
  return std::move(*steps);
}

// A tensor without the dimensions that are split at neither end: all of them count as one more, which nothing splits.
struct Ends {
  std::vector<size_t> dims;
  int64_t rest = 1;

  Ends(const Placement& start, const Placement& goal, const Dims& all) {
    for (size_t d = 0; d < all.size(); ++d) {
      if (!start.split(d).empty() || !goal.split(d).empty()) {
        dims.push_back(d);
      } else if (!IsSymbol(all[d]) &&
                 __builtin_mul_overflow(rest, static_cast<int64_t>(all[d]), &rest)) {
        rest = INT64_MAX / 8;
      }
    }
  }
  Placement Of(const Placement& placement) const {
    Placement out;
    for (size_t d : dims) out.splits.push_back(placement.split(d));
    out.partials = placement.partials;
    out.Normalize();
    return out;
  }
  Placement Back(const Placement& placement, size_t rank) const {
    Placement out;
    out.splits.resize(rank);
    for (size_t e = 0; e < dims.size(); ++e) out.splits[dims[e]] = placement.split(e);
    out.partials = placement.partials;
    out.Normalize();
    return out;
  }
};

}  // namespace

Result<std::vector<RedistributionStep>> PlanRedistribution(const Placement& from,
                                                           const Placement& to, const Dims& dims,
                                                           const Mesh& mesh, ReduceOrder order) {
  return PlanBy(from, to, dims, mesh,
                [&](const Placement& start, const Placement& goal, const Dims& parts) {
                  return RedistributionSearch(start, goal, parts, mesh, order).Run();
                });
}

Result<std::vector<RedistributionStep>> RedistributionCache::Plan(const Placement& from,
                                                                  const Placement& to,
                                                                  const Dims& dims,
                                                                  ReduceOrder order) {
  return PlanBy(from, to, dims, mesh_,
                [&](const Placement& start, const Placement& goal, const Dims& parts) {
                  return Find(start, goal, parts, order);
                });
}

// Where everything divides, and what one rank keeps divides once more, all that steps move is a part of the whole that does not depend
// on sizes: neither does the best way.
std::optional<RedistributionCache::Steps> RedistributionCache::Find(const Placement& start,
                                                                    const Placement& goal,
                                                                    const Dims& dims,
                                                                    ReduceOrder order) {
  Ends ends(start, goal, dims);
  // Steps are over these alone.
  Axes used;
  for (size_t d : ends.dims) used = Joined(Joined(used, start.split(d)), goal.split(d));
  for (const Partial& partial : start.partials) used.Add(partial.axis);
  int64_t ranks = mesh_.Size(used);
  int64_t last = ends.rest;
  bool even = true;
  for (size_t d : ends.dims) {
    even = even && !IsSymbol(dims[d]) && dims[d] % ranks == 0;
    if (even && __builtin_mul_overflow(last, dims[d] / ranks, &last)) even = false;
  }
  even = even && last % ranks == 0;
  std::vector<uint64_t> key{static_cast<uint64_t>(order), ends.dims.size(), even ? 1U : 0U};
  if (!even) key.push_back(static_cast<uint64_t>(ends.rest));
  for (size_t d : ends.dims) {
    key.push_back(start.split(d).bits());
    key.push_back(goal.split(d).bits());
    if (!even) key.push_back(static_cast<uint64_t>(dims[d]));
  }
  for (const Partial& partial : start.partials)
    key.push_back(uint64_t{partial.axis} << 8 | static_cast<uint64_t>(partial.op));
  auto [at, added] = found_.try_emplace(std::move(key));
  if (added) {
    Dims less;
    for (size_t d : ends.dims) less.push_back(dims[d]);
    less.push_back(ends.rest);
    at->second = RedistributionSearch(ends.Of(start), ends.Of(goal), less, mesh_, order).Run();
  }
  std::optional<Steps> steps = at->second;
  for (size_t i = 0; steps && i < steps->size(); ++i) {
    RedistributionStep& step = (*steps)[i];
    if (step.kind != StepKind::kAllReduce) step.dim = ends.dims[step.dim];
    if (step.kind == StepKind::kAllToAll) step.concat_dim = ends.dims[step.concat_dim];
    step.to = ends.Back(step.to, dims.size());
  }
  return steps;
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
      RedistributionSearch(start, goal, parts, mesh, ReduceOrder::kFewest).RunOnce();
  if (step) step->to = to;
  return step;
}

}  // namespace heddle
