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
      RedistributionSearch(start, goal, common.Parts(dims, mesh), mesh, order).Run(goal);
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
      RedistributionSearch(start, goal, parts, mesh, ReduceOrder::kFewest).RunOnce(goal);
  if (step) step->to = to;
  return step;
}

}  // namespace heddle
