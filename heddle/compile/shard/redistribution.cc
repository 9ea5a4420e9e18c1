#include "heddle/compile/shard/redistribution.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "heddle/compile/shard/redistribution_search.h"
#include "heddle/compile/shard/reduced_way.h"
#include "heddle/core/base/division.h"

namespace heddle::compile {
namespace {

// Converts a step between placements of the ends to a step for the whole tensor.
RedistributionStep StepOf(const ReducedWay& way, const StepGraph& graph,
                          const StepGraph::Step& step, size_t rank) {
  RedistributionStep out{.kind = step.kind, .over = step.over, .op = step.op};
  if (step.kind != CollectiveKind::kAllReduce) out.dim = way.dim_of_end[step.end];
  if (step.kind == CollectiveKind::kAllToAll) out.concat_dim = way.dim_of_end[step.concat_end];
  out.to = PlacementOf(way.Restored(graph.word(step.to)), rank);
  return out;
}

// Nullopt if the search would have to visit too many placements.
std::optional<std::vector<RedistributionStep>> CheapestSteps(const ReducedWay& way, size_t rank,
                                                             const Mesh& mesh, ReduceOrder order) {
  StepGraph graph = way.Graph(mesh);
  std::optional<std::vector<StepGraph::Step>> steps =
      RedistributionSearch(graph, way.start, UsedAxes(way.goal), order).Run(way.goal);
  if (!steps) return std::nullopt;
  std::vector<RedistributionStep> out;
  for (const StepGraph::Step& step : *steps) out.push_back(StepOf(way, graph, step, rank));
  return out;
}

// A slice may be over several axes, and start from a replicated tensor.
std::optional<RedistributionStep> CheapestStep(const ReducedWay& way, size_t rank,
                                               const Mesh& mesh) {
  StepGraph graph = way.Graph(mesh);
  const StepGraph::Step* best = nullptr;
  uint32_t end = graph.NumberOf(way.goal);
  for (const StepGraph::Step& step : graph.StepsFrom(graph.NumberOf(way.start))) {
    if (step.to != end || !step.kind) continue;
    if (best == nullptr || step.moved < best->moved) best = &step;
  }
  if (best != nullptr) return StepOf(way, graph, *best, rank);
  Placement goal = PlacementOf(way.goal, way.ends);
  if (way.start != 0 || way.ends != 1 || !goal.partials.empty()) return std::nullopt;
  return RedistributionStep{.over = goal.split(0), .dim = way.dim_of_end[0]};
}

// Reduces all sums, gathers all splits, then slices. Always correct, but rarely shortest.
std::vector<RedistributionStep> DirectPath(const ReducedWay& way, size_t rank) {
  std::vector<RedistributionStep> steps;
  Placement at = PlacementOf(way.start, way.ends);
  const Placement to = PlacementOf(way.goal, way.ends);
  at.splits.resize(way.ends);
  auto add = [&](RedistributionStep step) {
    Placement reached = at;
    reached.Normalize();
    step.to = PlacementOf(way.Restored(*WordOf(reached)), rank);
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
  std::vector<size_t> ends(way.ends);
  std::iota(ends.begin(), ends.end(), 0);
  std::ranges::sort(ends, {}, [&](size_t e) { return way.dim_of_end[e]; });
  for (size_t e : ends) {
    if (at.splits[e].empty()) continue;
    RedistributionStep step{
        .kind = CollectiveKind::kAllGather, .over = at.splits[e], .dim = way.dim_of_end[e]};
    at.splits[e] = Axes();
    add(step);
  }
  for (size_t e : ends) {
    if (to.split(e).empty()) continue;
    at.splits[e] = to.split(e);
    add({.over = to.split(e), .dim = way.dim_of_end[e]});
  }
  return steps;
}

// Nullopt for a tensor with too many dimensions.
std::optional<ReducedWay> Reduced(const Placement& from, const Placement& to, const Dims& dims,
                                  const Mesh& mesh) {
  std::optional<PlacementWord> start = WordOf(from);
  std::optional<PlacementWord> goal = WordOf(to);
  if (!start || !goal || dims.size() > AxisByte::kMostDims) return std::nullopt;
  return ReducedWay(*start, *goal, dims, mesh);
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
    }
  }
  return price;
}

Result<std::vector<RedistributionStep>> PlanRedistribution(const Placement& from,
                                                           const Placement& to, const Dims& dims,
                                                           const Mesh& mesh, ReduceOrder order) {
  std::optional<ReducedWay> way = Reduced(from, to, dims, mesh);
  if (!way)
    return Error(Diag::kRedistribution,
                 "a tensor of {} dimensions cannot be redistributed; the maximum is {}",
                 dims.size(), AxisByte::kMostDims);
  std::optional<Axes> forgotten = way->TakeForgotten();
  if (!forgotten) {
    return Error(Diag::kRedistribution, "no sequence of collectives leads from {} to {}",
                 FormatPlacement(from, dims.size(), mesh), FormatPlacement(to, dims.size(), mesh));
  }
  std::optional<std::vector<RedistributionStep>> steps =
      CheapestSteps(*way, dims.size(), mesh, order);
  if (!steps) steps = DirectPath(*way, dims.size());
  if (!forgotten->empty()) steps->push_back({.forgets = true, .over = *forgotten, .to = to});
  return std::move(*steps);
}

std::optional<RedistributionStep> OneStep(const Placement& from, const Placement& to,
                                          const Dims& dims, const Mesh& mesh) {
  std::optional<ReducedWay> way = Reduced(from, to, dims, mesh);
  if (!way) return std::nullopt;
  std::optional<Axes> forgotten = way->TakeForgotten();
  if (forgotten && !forgotten->empty()) {
    if (way->start != way->goal) return std::nullopt;
    return RedistributionStep{.forgets = true, .over = *forgotten, .to = to};
  }
  std::optional<RedistributionStep> step = CheapestStep(*way, dims.size(), mesh);
  if (step) step->to = to;
  return step;
}

}  // namespace heddle::compile
