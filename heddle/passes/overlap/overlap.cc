#include "heddle/passes/overlap/overlap.h"

#include <algorithm>

#include "heddle/base/text.h"
#include "heddle/cost/comm/collective.h"
#include "heddle/cost/comm/group.h"
#include "heddle/passes/fsdp/weights.h"
#include "heddle/passes/overlap/buckets/bucket_moves.h"
#include "heddle/passes/overlap/check_schedule.h"
#include "heddle/passes/overlap/describe.h"
#include "heddle/passes/overlap/order/order_search.h"

namespace heddle {
namespace {

// A study prices buckets by its curves. The cluster's own would be those of another machine.
Status CheckCurves(const Mesh& mesh, const Graph& graph, const CostModel& model) {
  if (model.measured() == nullptr || !model.measured()->study) return Done{};
  for (NodeId id : graph.nodes()) {
    std::optional<CollectiveKind> kind = CollectiveKindOf(graph[id].op);
    if (!kind || !(IsUnshard(graph, id) || IsGradReduction(graph, id))) continue;
    Axes over = std::get<Axes>(*graph.attrs(id).Find("over"));
    GroupShape group = ShapeOfGroups(mesh, over, model.cluster().devices_per_node);
    HEDDLE_TRY(const Curve* curve, model.measured()->FindCurve(*kind, mesh, over, group));
    if (curve != nullptr) continue;
    Failure failure = Error(Diag::kCostsFile,
                            "`curves` has none for {} over {}, by which buckets are priced; "
                            "without buckets none is needed",
                            Name(*kind), Format(mesh, over));
    failure.diagnostics[0].file = model.measured()->file;
    return failure;
  }
  return Done{};
}

class OverlapSearch {
 public:
  OverlapSearch(const Module& module, const Graph& graph, const CostModel& model,
                const SimulateOptions& sim, const OverlapOptions& options)
      : module_(module),
        graph_(graph),
        model_(model),
        sim_(sim),
        options_(options),
        runs_(FindEqualLayers(graph)) {}

  // The best graph there is, or none if the given one is.
  Result<std::optional<Graph>> Run();

  Bytes cap() const { return cap_; }
  const Outcome& before() const { return before_; }
  const Outcome& best() const { return best_; }
  const std::vector<LayerRun>& runs() const { return runs_; }
  const std::vector<EqualLayers>& layers() const { return layers_; }

 private:
  // How long the step is with the best order found; INT64_MAX if none keeps the cap.
  Result<Nanos> Try(Graph graph, bool thorough);
  FoundOrder Search(const Graph& graph, const SimGraph& sim, bool thorough) const;
  Result<Nanos> TryBuckets(const Buckets& buckets, bool thorough);
  // Every way to merge, and then the best of them again, with more effort.
  Status TryAll(const std::vector<Buckets>& ways);
  // Ways next to the best one, as long as one is better.
  Status TryNext();
  // Compute that was moved once may be moved again.
  Status TryAgain();
  // Equal layers of what was found get one schedule.
  Status Share();

  const Module& module_;
  const Graph& graph_;
  const CostModel& model_;
  const SimulateOptions& sim_;
  const OverlapOptions& options_;
  // Of the graph that is given.
  const std::vector<LayerRun> runs_;
  Bytes cap_;
  Outcome before_;
  Outcome best_;
  // The least that any order needed.
  Bytes least_;
  std::optional<Graph> found_;
  // What is merged in it.
  Buckets buckets_;
  std::vector<EqualLayers> layers_;
};

Result<std::optional<Graph>> OverlapSearch::Run() {
  HEDDLE_TRY(GraphCosts costs, model_.Price(module_, graph_));
  SimGraph sim(graph_, costs, sim_.memory);
  Replay replay(sim, TimelineOptions(model_, sim_));
  before_ = best_ = replay.outcome();
  least_ = before_.peak;
  cap_ = options_.memory.Of(before_.peak);
  if (cap_ < before_.peak) best_.makespan = {INT64_MAX};
  const bool small = OrderSearch::IsSmall(graph_);
  // Who names a size gets buckets of that size, although the step might be shorter without.
  const bool sized = options_.buckets.kind == BucketRule::Kind::kSize && !options_.strict;
  std::vector<Buckets> ways;
  if (!sized) ways.emplace_back();
  if (!options_.strict) {
    // What a few nodes are merged into does not depend on the cap, as what is tried with them does not.
    Bytes room = small ? Bytes{INT64_MAX} : cap_;
    HEDDLE_TRY(std::vector<Buckets> merged,
               BucketCandidates(module_, graph_, model_, sim, room, options_));
    ways.insert(ways.end(), merged.begin(), merged.end());
  }
  HEDDLE_RETURN_IF_ERROR(TryAll(ways));
  if (sized && !found_) HEDDLE_RETURN_IF_ERROR(Try(graph_, !small));
  if (best_.peak > cap_ || best_.makespan.value == INT64_MAX)
    return Error(Diag::kInfeasible,
                 "{} of memory is too little; the smallest peak found is {}, {} bytes",
                 Format(cap_), Format(least_), least_.value);
  HEDDLE_RETURN_IF_ERROR(Share());
  return std::move(found_);
}

Status OverlapSearch::TryAll(const std::vector<Buckets>& ways) {
  std::vector<std::pair<Nanos, size_t>> tried;
  for (size_t i = 0; i < ways.size(); ++i) {
    HEDDLE_TRY(Nanos makespan, TryBuckets(ways[i], false));
    tried.emplace_back(makespan, i);
  }
  // For a few nodes, more effort with some ways would make more memory not always better.
  if (OrderSearch::IsSmall(graph_) || options_.effort == Effort::kFast) return Done{};
  std::ranges::sort(tried);
  size_t again = options_.effort == Effort::kNormal ? 3 : 10;
  tried.resize(std::min(tried.size(), again));
  for (const auto& [makespan, i] : tried) HEDDLE_RETURN_IF_ERROR(TryBuckets(ways[i], true));
  if (options_.strict) return Done{};
  const bool any = options_.buckets.kind == BucketRule::Kind::kAuto;
  if (any) HEDDLE_RETURN_IF_ERROR(TryNext());
  HEDDLE_RETURN_IF_ERROR(TryAgain());
  if (!any) return Done{};
  const Nanos best = best_.makespan;
  if (std::optional<Buckets> way = Repeated(graph_, runs_, buckets_))
    HEDDLE_RETURN_IF_ERROR(TryBuckets(*way, true));
  return best_.makespan < best ? TryAgain() : Done{};
}

Status OverlapSearch::TryAgain() {
  constexpr int kTries = 3;
  for (int i = 0; i < kTries && found_; ++i) {
    const Nanos best = best_.makespan;
    HEDDLE_RETURN_IF_ERROR(Try(*found_, true));
    if (best_.makespan == best) break;
  }
  return Done{};
}

Status OverlapSearch::TryNext() {
  const int most = options_.effort == Effort::kNormal ? 8 : 64;
  int tried = 0;
  for (bool better = true; better && found_ && !buckets_.empty();) {
    better = false;
    HEDDLE_TRY(GraphCosts costs, model_.Price(module_, *found_));
    SimGraph sim(*found_, costs, sim_.memory);
    Timeline timeline = MakeTimeline(sim, TimelineOptions(model_, sim_));
    size_t bucket = MostExposed(graph_, buckets_, *found_, timeline);
    if (bucket == buckets_.size()) break;
    for (const Buckets& way : WithShorter(graph_, buckets_, bucket)) {
      if (tried++ == most) return Done{};
      const Nanos best = best_.makespan;
      HEDDLE_TRY(Nanos makespan, TryBuckets(way, false));
      better = better || makespan < best;
    }
  }
  return Done{};
}

Result<Nanos> OverlapSearch::TryBuckets(const Buckets& buckets, bool thorough) {
  const Nanos best = best_.makespan;
  Graph graph = graph_;
  AnalysisCache analyses;
  PassContext context(module_.mesh, analyses);
  if (!buckets.empty() && MergeBuckets(graph, context, buckets) == Changed::kNo)
    return Nanos{INT64_MAX};
  HEDDLE_TRY(Nanos makespan, Try(std::move(graph), thorough));
  if (makespan < best) buckets_ = buckets;
  return makespan;
}

Status OverlapSearch::Share() {
  const Graph& graph = found_ ? *found_ : graph_;
  const LayerWords words(graph_, runs_, graph);
  if (runs_.empty()) return Done{};
  std::vector<NodeId> order(graph.nodes().begin(), graph.nodes().end());
  if (found_ && options_.effort != Effort::kFast) {
    HEDDLE_TRY(GraphCosts costs, model_.Price(module_, *found_));
    SimGraph sim(*found_, costs, sim_.memory);
    Replay replay(sim, TimelineOptions(model_, sim_));
    StepShape shape(*found_, sim, options_.freedom());
    ShareLayers(words, shape, {best_.makespan, cap_, options_.strict}, replay);
    // A few nodes: shorter with some caps would make more memory not always better.
    if (!OrderSearch::IsSmall(graph_) || replay.outcome().makespan == best_.makespan) {
      order = replay.order();
      best_ = replay.outcome();
    }
  }
  layers_ = DescribeLayers(graph_, words, order);
  if (std::ranges::is_sorted(order)) return Done{};
  Rewriter rewriter(*found_);
  rewriter.Reorder(order);
  rewriter.Commit();
  return Done{};
}

FoundOrder OverlapSearch::Search(const Graph& graph, const SimGraph& sim, bool thorough) const {
  SimOptions timeline = TimelineOptions(model_, sim_);
  auto search = [&](Freedom freedom) {
    return OrderSearch(graph, sim, timeline, options_, freedom).Run(cap_, thorough);
  };
  FoundOrder found = search(options_.freedom());
  if (!thorough && !OrderSearch::IsSmall(graph)) return found;
  // With less freedom, too: what is greedy with more may end behind.
  for (Freedom less : {Freedom::kLight, Freedom::kNone}) {
    if (less >= options_.freedom()) continue;
    FoundOrder other = search(less);
    const Bytes least = std::min(found.least, other.least);
    const bool better = !other.order.empty() &&
                        (found.order.empty() || other.outcome.makespan < found.outcome.makespan);
    if (better) found = std::move(other);
    found.least = least;
  }
  return found;
}

Result<Nanos> OverlapSearch::Try(Graph graph, bool thorough) {
  HEDDLE_TRY(GraphCosts costs, model_.Price(module_, graph));
  SimGraph sim(graph, costs, sim_.memory);
  FoundOrder found = Search(graph, sim, thorough);
  least_ = std::min(least_, found.least);
  if (found.order.empty()) return Nanos{INT64_MAX};
  const Nanos makespan = found.outcome.makespan;
  if (makespan >= best_.makespan) return makespan;
  best_ = found.outcome;
  Rewriter rewriter(graph);
  rewriter.Reorder(found.order);
  rewriter.Commit();
  found_ = std::move(graph);
  return makespan;
}

}  // namespace

Result<OverlapResult> Overlap(const Module& module, Graph& graph, const CostModel& model,
                              const SimulateOptions& sim, const OverlapOptions& options,
                              PassContext& context) {
  bool merges = options.buckets.kind != BucketRule::Kind::kNone && !options.strict;
  if (merges) HEDDLE_RETURN_IF_ERROR(CheckCurves(module.mesh, graph, model));
  OverlapSearch search(module, graph, model, sim, options);
  HEDDLE_TRY(std::optional<Graph> found, search.Run());
  OverlapResult result{.cap = search.cap(),
                       .before = search.before(),
                       .after = search.best(),
                       .layers = search.layers()};
  if (found) {
    HEDDLE_RETURN_IF_ERROR(
        CheckSchedule(graph, *found, search.cap(), sim.memory, options.freedom()));
    result.moved = ExplainMoved(graph, search.runs(), *found, context);
    graph = std::move(*found);
    result.changed = Changed::kYes;
  }
  ExplainLayers(graph, result.layers, context);
  HEDDLE_RETURN_IF_ERROR(ExplainExposed(module, graph, model, sim, search.cap(), context));
  return result;
}

}  // namespace heddle
