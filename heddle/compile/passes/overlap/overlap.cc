#include "heddle/compile/passes/overlap/overlap.h"

#include <algorithm>
#include <map>

#include "heddle/compile/passes/overlap/buckets/bucket_moves.h"
#include "heddle/compile/passes/overlap/check_schedule.h"
#include "heddle/compile/passes/overlap/describe.h"
#include "heddle/compile/passes/overlap/order/order_search.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/core/base/text.h"
#include "heddle/price/cost/comm/group.h"

namespace heddle::compile {
namespace {

// Costs of a whole graph price buckets by their curves. Those of the cluster are of another
// machine.
Status CheckCurves(const Mesh& mesh, const Graph& graph, const price::CostModel& model) {
  if (model.measured() == nullptr || !model.measured()->whole_graph) return Done{};
  for (NodeId id : graph.nodes()) {
    std::optional<CollectiveKind> kind = CollectiveKindOf(graph[id].op);
    if (!kind || !(IsUnshard(graph, id) || IsGradReduction(graph, id))) continue;
    Axes over = std::get<Axes>(*graph.attrs(id).Find("over"));
    price::GroupShape group = price::ShapeOfGroups(mesh, over, model.cluster().devices_per_node);
    HEDDLE_TRY(const price::Curve* curve, model.measured()->FindCurve(*kind, mesh, over, group));
    if (curve != nullptr) continue;
    Failure failure = Error(Diag::kCostsFile,
                            "`curves` has no curve for {} over {}, which prices buckets; add one, "
                            "or use --buckets=none",
                            Name(*kind), Format(mesh, over));
    failure.diagnostics[0].file = model.measured()->file;
    return failure;
  }
  return Done{};
}

// The best schedule of a round.
struct FoundSchedule {
  price::Outcome outcome;
  // None while the given graph is the best.
  std::optional<Graph> graph;
  Buckets buckets;
  // Step times of the ways to merge that were tried quickly.
  std::map<Buckets, Nanos> tried;
};

// Searches in rounds, from little effort and freedom to much. A round that finds no shorter step
// takes over the result of a round with less effort or less freedom. More effort or more freedom
// therefore never makes a step longer.
class OverlapSearch {
 public:
  OverlapSearch(const Module& module, const Graph& graph, const price::CostModel& model,
                const price::SimulateOptions& sim, const OverlapOptions& options)
      : module_(module),
        graph_(graph),
        model_(model),
        sim_(sim),
        options_(options),
        round_(options),
        runs_(FindEqualLayers(graph)) {}

  Result<FoundSchedule> Run();

  Bytes cap() const { return cap_; }
  const price::Outcome& before() const { return before_; }
  const std::vector<LayerRun>& runs() const { return runs_; }

 private:
  // The options of the rounds, as rows of equal freedom and rising effort.
  std::vector<std::vector<OverlapOptions>> Rounds() const;
  // `less_free`: the result of the round with as much effort and less freedom, or null.
  Status RunRound(const price::SimGraph& sim, const FoundSchedule* less_free);
  Result<std::vector<Buckets>> Ways(const price::SimGraph& sim,
                                    const FoundSchedule* less_free) const;
  // The number of promising ways to merge.
  size_t Promising() const { return round_.effort == Effort::kBest ? 10 : 3; }
  // Large graphs continue a search with less freedom, small ones are searched again.
  bool Continues(const FoundSchedule* less_free) const {
    return less_free != nullptr && !OrderSearch::IsSmall(graph_);
  }
  // The given result instead of this round's, unless this round's step is shorter.
  void KeepShorter(const FoundSchedule& other);
  // Step time of the best order found; INT64_MAX if none meets the limit.
  Result<Nanos> Try(Graph graph, bool thorough, Bytes spare = {});
  FoundOrder Search(const Graph& graph, const price::SimGraph& sim, bool thorough,
                    Bytes spare) const;
  Result<Nanos> TryBuckets(const Buckets& buckets, bool thorough);
  // Tries every way to merge, and then the best ones again with more effort.
  Status TryAll(const std::vector<Buckets>& ways, const FoundSchedule* less_free);
  // Step time of a way to merge. Does not repeat a trial that was made with less effort.
  Result<Nanos> TryOnce(const Buckets& way, const FoundSchedule* less_free);
  // Tries variations of the best way while they improve it.
  Status TryNext();
  // Moves compute of the best schedule again.
  Status TryAgain();
  // Tries the best way once more, with orders built for more memory than the limit.
  Status TrySpare();

  const Module& module_;
  const Graph& graph_;
  const price::CostModel& model_;
  const price::SimulateOptions& sim_;
  const OverlapOptions& options_;
  // The options of the current round.
  OverlapOptions round_;
  // Equal layers of the given graph.
  const std::vector<LayerRun> runs_;
  Bytes cap_;
  price::Outcome before_;
  // The smallest peak of any order.
  Bytes least_;
  FoundSchedule found_;
};

std::vector<std::vector<OverlapOptions>> OverlapSearch::Rounds() const {
  std::vector<std::vector<OverlapOptions>> rounds;
  for (bool reorder : {false, true}) {
    if (reorder && options_.freedom() != Freedom::kAll) continue;
    rounds.emplace_back();
    for (Effort effort : {Effort::kFast, Effort::kNormal, Effort::kBest}) {
      if (effort > options_.effort) continue;
      rounds.back().push_back(options_);
      rounds.back().back().effort = effort;
      rounds.back().back().reorder_compute = reorder;
    }
  }
  return rounds;
}

Result<FoundSchedule> OverlapSearch::Run() {
  HEDDLE_TRY(price::GraphCosts costs, model_.Price(module_, graph_));
  price::SimGraph sim(graph_, costs, sim_.memory);
  price::Replay replay(sim, price::TimelineOptions(model_, sim_));
  before_ = found_.outcome = replay.outcome();
  least_ = before_.peak;
  cap_ = options_.memory.Of(before_.peak);
  if (cap_ < before_.peak) found_.outcome.makespan = {INT64_MAX};
  const FoundSchedule given = found_;
  // Indexed by effort: the results with less freedom.
  std::vector<FoundSchedule> less_free;
  for (const std::vector<OverlapOptions>& row : Rounds()) {
    std::vector<FoundSchedule> results;
    for (size_t i = 0; i < row.size(); ++i) {
      found_ = !less_free.empty() && Continues(&less_free[i]) ? less_free[i] : given;
      found_.tried = i > 0 ? results[i - 1].tried : given.tried;
      round_ = row[i];
      HEDDLE_RETURN_IF_ERROR(RunRound(sim, less_free.empty() ? nullptr : &less_free[i]));
      if (i > 0) KeepShorter(results[i - 1]);
      if (!less_free.empty()) KeepShorter(less_free[i]);
      results.push_back(found_);
    }
    less_free = std::move(results);
  }
  if (found_.outcome.makespan.value == INT64_MAX)
    return Error(Diag::kInfeasible,
                 "a memory limit of {} is too small; the smallest peak found is {}, {} bytes",
                 Format(cap_), Format(least_), least_.value);
  return std::move(found_);
}

void OverlapSearch::KeepShorter(const FoundSchedule& other) {
  if (other.outcome.makespan > found_.outcome.makespan) return;
  std::map<Buckets, Nanos> tried = std::move(found_.tried);
  found_ = other;
  found_.tried = std::move(tried);
}

// The ways with the shortest steps, shortest first.
std::vector<Buckets> Shortest(const std::map<Buckets, Nanos>& tried, size_t most) {
  std::vector<std::pair<Nanos, const Buckets*>> ways;
  for (const auto& [way, makespan] : tried) ways.emplace_back(makespan, &way);
  std::ranges::stable_sort(ways, {}, &std::pair<Nanos, const Buckets*>::first);
  ways.resize(std::min(ways.size(), most));
  std::vector<Buckets> shortest;
  for (const auto& [makespan, way] : ways) shortest.push_back(*way);
  return shortest;
}

Result<std::vector<Buckets>> OverlapSearch::Ways(const price::SimGraph& sim,
                                                 const FoundSchedule* less_free) const {
  // A user who names a size gets buckets of that size, even where the step would be shorter
  // without.
  const bool sized = options_.buckets.kind == BucketRule::Kind::kSize && !options_.strict;
  std::vector<Buckets> ways;
  if (!sized) ways.emplace_back();
  if (options_.strict) return ways;
  // For small graphs the ways to merge must not depend on the cap: a larger cap never makes such a
  // step longer.
  Bytes room = OrderSearch::IsSmall(graph_) ? Bytes{INT64_MAX} : cap_;
  OverlapOptions options = round_;
  if (Continues(less_free)) {
    // The best ways with less freedom replace most of the search for other ones.
    options.effort = round_.effort == Effort::kBest ? Effort::kNormal : Effort::kFast;
    ways = Shortest(less_free->tried, Promising());
  }
  HEDDLE_TRY(std::vector<Buckets> merged,
             BucketCandidates(module_, graph_, model_, sim, room, options));
  for (Buckets& way : merged) {
    if (std::ranges::find(ways, way) == ways.end()) ways.push_back(std::move(way));
  }
  return ways;
}

Status OverlapSearch::RunRound(const price::SimGraph& sim, const FoundSchedule* less_free) {
  HEDDLE_TRY(std::vector<Buckets> ways, Ways(sim, less_free));
  HEDDLE_RETURN_IF_ERROR(TryAll(ways, less_free));
  const bool sized = options_.buckets.kind == BucketRule::Kind::kSize && !options_.strict;
  if (sized && !found_.graph) HEDDLE_RETURN_IF_ERROR(TryBuckets({}, !OrderSearch::IsSmall(graph_)));
  return Done{};
}

Result<Nanos> OverlapSearch::TryOnce(const Buckets& way, const FoundSchedule* less_free) {
  auto known = found_.tried.find(way);
  if (known != found_.tried.end()) return known->second;
  if (Continues(less_free)) {
    // Skip ways that are much slower with less freedom.
    constexpr int64_t kBehind = 32;
    auto before = less_free->tried.find(way);
    const int64_t best = less_free->outcome.makespan.value;
    if (before != less_free->tried.end() && before->second.value > best + best / kBehind)
      return Nanos{INT64_MAX};
  }
  HEDDLE_TRY(Nanos makespan, TryBuckets(way, false));
  found_.tried[way] = makespan;
  return makespan;
}

Status OverlapSearch::TryAll(const std::vector<Buckets>& ways, const FoundSchedule* less_free) {
  std::vector<std::pair<Nanos, size_t>> tried;
  for (size_t i = 0; i < ways.size(); ++i) {
    HEDDLE_TRY(Nanos makespan, TryOnce(ways[i], less_free));
    tried.emplace_back(makespan, i);
  }
  // For small graphs, more effort for some ways only would let a larger cap make a step longer.
  if (OrderSearch::IsSmall(graph_)) return Done{};
  if (round_.effort == Effort::kFast) return options_.strict ? Status(Done{}) : TrySpare();
  std::ranges::sort(tried);
  tried.resize(std::min(tried.size(), Continues(less_free) ? Promising() / 3 : Promising()));
  for (const auto& [makespan, i] : tried) HEDDLE_RETURN_IF_ERROR(TryBuckets(ways[i], true));
  if (options_.strict) return Done{};
  if (Continues(less_free)) return TryAgain();
  const bool any = options_.buckets.kind == BucketRule::Kind::kAuto;
  if (any) HEDDLE_RETURN_IF_ERROR(TryNext());
  HEDDLE_RETURN_IF_ERROR(TrySpare());
  HEDDLE_RETURN_IF_ERROR(TryAgain());
  if (!any) return Done{};
  const Nanos shortest = found_.outcome.makespan;
  if (std::optional<Buckets> way = Repeated(graph_, runs_, found_.buckets))
    HEDDLE_RETURN_IF_ERROR(TryBuckets(*way, true));
  return found_.outcome.makespan < shortest ? TryAgain() : Done{};
}

Status OverlapSearch::TrySpare() {
  constexpr int64_t kShare = 256;
  Graph graph = graph_;
  PassContext context(module_.mesh);
  if (!found_.buckets.empty()) MergeBuckets(graph, context, found_.buckets);
  const bool thorough = round_.effort != Effort::kFast;
  HEDDLE_RETURN_IF_ERROR(Try(std::move(graph), thorough, {cap_.value / kShare}));
  return Done{};
}

Status OverlapSearch::TryAgain() {
  constexpr int kTries = 3;
  for (int i = 0; i < kTries && found_.graph; ++i) {
    const Nanos best = found_.outcome.makespan;
    HEDDLE_RETURN_IF_ERROR(Try(*found_.graph, true));
    if (found_.outcome.makespan == best) break;
  }
  return Done{};
}

Status OverlapSearch::TryNext() {
  const int most = round_.effort == Effort::kNormal ? 8 : 64;
  int tried = 0;
  for (bool better = true; better && found_.graph && !found_.buckets.empty();) {
    better = false;
    HEDDLE_TRY(price::GraphCosts costs, model_.Price(module_, *found_.graph));
    price::SimGraph sim(*found_.graph, costs, sim_.memory);
    price::Timeline timeline = price::MakeTimeline(sim, price::TimelineOptions(model_, sim_));
    size_t bucket = MostExposed(graph_, found_.buckets, *found_.graph, timeline);
    if (bucket == found_.buckets.size()) break;
    for (const Buckets& way : WithShorter(graph_, found_.buckets, bucket)) {
      if (tried++ == most) return Done{};
      const Nanos best = found_.outcome.makespan;
      HEDDLE_TRY(Nanos makespan, TryBuckets(way, false));
      better = better || makespan < best;
    }
  }
  return Done{};
}

Result<Nanos> OverlapSearch::TryBuckets(const Buckets& buckets, bool thorough) {
  const Nanos best = found_.outcome.makespan;
  Graph graph = graph_;
  PassContext context(module_.mesh);
  if (!buckets.empty() && MergeBuckets(graph, context, buckets) == Changed::kNo)
    return Nanos{INT64_MAX};
  HEDDLE_TRY(Nanos makespan, Try(std::move(graph), thorough));
  if (makespan < best) found_.buckets = buckets;
  return makespan;
}

FoundOrder OverlapSearch::Search(const Graph& graph, const price::SimGraph& sim, bool thorough,
                                 Bytes spare) const {
  price::SimOptions timeline = price::TimelineOptions(model_, sim_);
  auto search = [&](Freedom freedom) {
    return OrderSearch(graph, sim, timeline, options_, freedom).Run(cap_, thorough, spare);
  };
  FoundOrder found = search(round_.freedom());
  if (round_.freedom() != Freedom::kLight || (!thorough && !OrderSearch::IsSmall(graph)) ||
      spare.value > 0)
    return found;
  // The scheduler is greedy and may find a shorter step without moving compute.
  FoundOrder fixed = search(Freedom::kNone);
  const Bytes least = std::min(found.least, fixed.least);
  const bool better = !fixed.order.empty() &&
                      (found.order.empty() || fixed.outcome.makespan < found.outcome.makespan);
  if (better) found = std::move(fixed);
  found.least = least;
  return found;
}

Result<Nanos> OverlapSearch::Try(Graph graph, bool thorough, Bytes spare) {
  HEDDLE_TRY(price::GraphCosts costs, model_.Price(module_, graph));
  price::SimGraph sim(graph, costs, sim_.memory);
  FoundOrder found = Search(graph, sim, thorough, spare);
  least_ = std::min(least_, found.least);
  if (found.order.empty()) return Nanos{INT64_MAX};
  const Nanos makespan = found.outcome.makespan;
  if (makespan >= found_.outcome.makespan) return makespan;
  found_.outcome = found.outcome;
  Rewriter rewriter(graph);
  rewriter.Reorder(found.order);
  rewriter.Commit();
  found_.graph = std::move(graph);
  return makespan;
}

}  // namespace

Result<OverlapResult> Overlap(const Module& module, Graph& graph, const price::CostModel& model,
                              const price::SimulateOptions& sim, const OverlapOptions& options,
                              PassContext& context) {
  bool merges = options.buckets.kind != BucketRule::Kind::kNone && !options.strict;
  if (merges) HEDDLE_RETURN_IF_ERROR(CheckCurves(module.mesh, graph, model));
  OverlapSearch search(module, graph, model, sim, options);
  HEDDLE_TRY(FoundSchedule found, search.Run());
  OverlapResult result{.cap = search.cap(), .before = search.before(), .after = found.outcome};
  if (found.graph) {
    HEDDLE_RETURN_IF_ERROR(
        CheckSchedule(graph, *found.graph, search.cap(), sim.memory, options.freedom()));
    result.moved = ExplainMoved(graph, search.runs(), *found.graph, context);
    graph = std::move(*found.graph);
    result.changed = Changed::kYes;
  }
  HEDDLE_RETURN_IF_ERROR(ExplainExposed(module, graph, model, sim, search.cap(), context));
  return result;
}

}  // namespace heddle::compile
