#include "heddle/compile/shard/redistribution.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "heddle/compile/shard/redistribution_search.h"
#include "heddle/compile/shard/reduced_redistribution.h"
#include "heddle/core/base/division.h"

namespace heddle::compile {
namespace {

// Converts a step between placements of the ends to a step for the whole tensor.
RedistributionStep StepOf(const ReducedRedistribution& reduced, const RedistributionGraph& graph,
                          const RedistributionGraph::Step& step, size_t rank) {
  RedistributionStep out{.kind = step.kind, .over = step.over, .op = step.op};
  if (step.kind != CollectiveKind::kAllReduce) out.dim = reduced.dim_of_end[step.end];
  if (step.kind == CollectiveKind::kAllToAll) out.concat_dim = reduced.dim_of_end[step.concat_end];
  out.to = Unpack(reduced.Restored(graph.packed(step.to)), rank);
  return out;
}

// Nullopt if the search would have to visit too many placements.
std::optional<std::vector<RedistributionStep>> CheapestSteps(const ReducedRedistribution& reduced,
                                                             size_t rank, const Mesh& mesh,
                                                             ReduceOrder order) {
  RedistributionGraph graph = reduced.Graph(mesh);
  std::optional<std::vector<RedistributionGraph::Step>> steps =
      RedistributionSearch(graph, reduced.start, UsedAxes(reduced.goal), order).Run(reduced.goal);
  if (!steps) return std::nullopt;
  std::vector<RedistributionStep> out;
  for (const RedistributionGraph::Step& step : *steps)
    out.push_back(StepOf(reduced, graph, step, rank));
  return out;
}

// A slice may be over several axes, and start from a replicated tensor.
std::optional<RedistributionStep> CheapestStep(const ReducedRedistribution& reduced, size_t rank,
                                               const Mesh& mesh) {
  RedistributionGraph graph = reduced.Graph(mesh);
  const RedistributionGraph::Step* best = nullptr;
  uint32_t end = graph.NumberOf(reduced.goal);
  for (const RedistributionGraph::Step& step : graph.StepsFrom(graph.NumberOf(reduced.start))) {
    if (step.to != end || !step.kind) continue;
    if (best == nullptr || step.moved < best->moved) best = &step;
  }
  if (best != nullptr) return StepOf(reduced, graph, *best, rank);
  Placement goal = Unpack(reduced.goal, reduced.ends);
  if (reduced.start != 0 || reduced.ends != 1 || !goal.partials.empty()) return std::nullopt;
  return RedistributionStep{.over = goal.split(0), .dim = reduced.dim_of_end[0]};
}

// Reduces all sums, gathers all splits, then slices. Always correct, but rarely shortest.
std::vector<RedistributionStep> DirectPath(const ReducedRedistribution& reduced, size_t rank) {
  std::vector<RedistributionStep> steps;
  Placement at = Unpack(reduced.start, reduced.ends);
  const Placement to = Unpack(reduced.goal, reduced.ends);
  at.splits.resize(reduced.ends);
  auto add = [&](RedistributionStep step) {
    Placement reached = at;
    reached.Normalize();
    step.to = Unpack(reduced.Restored(*Pack(reached)), rank);
    steps.push_back(std::move(step));
  };
  while (!at.partials.empty()) {
    RedistributionStep step{.kind = CollectiveKind::kAllReduce, .op = at.partials[0].op};
    for (const Partial& partial : at.partials) {
      if (partial.op == step.op) step.over.Add(partial.axis);
    }
    std::erase_if(at.partials, [&](const Partial& partial) { return partial.op == step.op; });
    add(step);
  }
  std::vector<size_t> ends(reduced.ends);
  std::iota(ends.begin(), ends.end(), 0);
  std::ranges::sort(ends, {}, [&](size_t e) { return reduced.dim_of_end[e]; });
  for (size_t e : ends) {
    if (at.splits[e].empty()) continue;
    RedistributionStep step{
        .kind = CollectiveKind::kAllGather, .over = at.splits[e], .dim = reduced.dim_of_end[e]};
    at.splits[e] = Axes();
    add(step);
  }
  for (size_t e : ends) {
    if (to.split(e).empty()) continue;
    at.splits[e] = to.split(e);
    add({.over = to.split(e), .dim = reduced.dim_of_end[e]});
  }
  return steps;
}

// Nullopt for a tensor with too many dimensions.
std::optional<ReducedRedistribution> Reduced(const Placement& from, const Placement& to,
                                             const Dims& dims, const Mesh& mesh) {
  std::optional<PackedPlacement> start = Pack(from);
  std::optional<PackedPlacement> goal = Pack(to);
  if (!start || !goal || dims.size() > AxisByte::kMostDims) return std::nullopt;
  return ReducedRedistribution(*start, *goal, dims, mesh);
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
    // Only for prices: an unknown size counts once for all paths.
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
    int64_t held = std::exchange(before, after);
    int64_t share = held - CeilDiv(held, mesh.Size(step.over));
    price.steps += 1;
    if (!step.kind) continue;
    price.collectives += 1;
    switch (*step.kind) {
      case CollectiveKind::kAllGather: price.moved += after - held; break;
      case CollectiveKind::kReduceScatter: price.moved += held - after; break;
      case CollectiveKind::kAllReduce: price.moved += 2 * share; break;
      case CollectiveKind::kAllToAll: price.moved += share; break;
      // Moves no split or sum.
      case CollectiveKind::kShift: break;
    }
  }
  return price;
}

Result<std::vector<RedistributionStep>> PlanRedistribution(const Placement& from,
                                                           const Placement& to, const Dims& dims,
                                                           const Mesh& mesh, ReduceOrder order) {
  std::optional<ReducedRedistribution> reduced = Reduced(from, to, dims, mesh);
  if (!reduced)
    return Error(Diag::kRedistribution,
                 "a tensor of {} dimensions cannot be redistributed; the maximum is {}",
                 dims.size(), AxisByte::kMostDims);
  std::optional<Axes> forgotten = reduced->TakeForgotten();
  if (!forgotten) {
    return Error(Diag::kRedistribution, "no sequence of collectives leads from {} to {}",
                 FormatPlacement(from, dims.size(), mesh), FormatPlacement(to, dims.size(), mesh));
  }
  std::optional<std::vector<RedistributionStep>> steps =
      CheapestSteps(*reduced, dims.size(), mesh, order);
  if (!steps) steps = DirectPath(*reduced, dims.size());
  if (!forgotten->empty()) steps->push_back({.forgets = true, .over = *forgotten, .to = to});
  return std::move(*steps);
}

std::optional<RedistributionStep> OneStep(const Placement& from, const Placement& to,
                                          const Dims& dims, const Mesh& mesh) {
  std::optional<ReducedRedistribution> reduced = Reduced(from, to, dims, mesh);
  if (!reduced) return std::nullopt;
  std::optional<Axes> forgotten = reduced->TakeForgotten();
  if (forgotten && !forgotten->empty()) {
    if (reduced->start != reduced->goal) return std::nullopt;
    return RedistributionStep{.forgets = true, .over = *forgotten, .to = to};
  }
  std::optional<RedistributionStep> step = CheapestStep(*reduced, dims.size(), mesh);
  if (step) step->to = to;
  return step;
}

}  // namespace heddle::compile
