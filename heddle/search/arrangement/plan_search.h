// PlanSearch: finds the best plans for training a model on a number of devices, and their outcomes.
//
// A point of the search space is an arrangement of ranks, its placements, the checkpointing policy,
// whether gathered weights stay in memory, and the scheduler of collectives. Small models give
// lower bounds and expected outcomes of a point (point_evaluator.h), which prune most points. The
// others are simulated in the order of their expected times.
#pragma once

#include <algorithm>
#include <functional>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/search/arrangement/pipeline_search.h"

namespace heddle::search {

// Progress of a search: finished and total points, the current phase, and the best point, or null.
struct SearchProgress {
  size_t done = 0;
  size_t all = 0;
  std::string_view doing;
  const TriedPoint* best = nullptr;
};

struct PlanSearchOptions {
  int64_t devices = 1;
  // Sequences per step, over all ranks.
  int64_t global_batch = 1;
  Bytes budget;
  // A name or a file.
  std::string cluster = "h100-8x";
  // Also tries placements from the solver.
  bool automatic = true;
  // Also schedules the fastest plan with `overlap`.
  bool overlap = true;
  // Also searches pipelines.
  bool pipelines = true;
  // Work limit of the solver per mesh.
  WorkAmount solver = AutoOptions().work;
  std::function<void(const SearchProgress&)> progress = {};
};

// The fastest plan with context parallelism by a preset, and the same with the other method.
struct MethodChoice {
  TriedPoint chosen;
  TriedPoint other;
};

// The fastest pipeline that fits.
struct BestPipeline {
  PredictedPipeline figures;
  // Otherwise predicted, because it cannot win.
  bool simulated = false;
};

struct SearchResult {
  // The plans that fit and that no other plan beats: no other that fits is at least as fast and
  // needs at most as much memory. From the fastest to the smallest; the first is the answer.
  std::vector<TriedPoint> front;
  // Set if the first has context parallelism, and the model supports both methods.
  std::optional<MethodChoice> methods;
  // None if no pipeline is possible.
  std::optional<BestPipeline> pipeline;
  // Number of points: of presets, of the solver, of `overlap` and of pipelines.
  size_t points = 0;
  // Number of points that were simulated completely.
  size_t tried = 0;
  // Number of points that were not: pruned by their bounds, or by the promise of small models.
  size_t pruned = 0;
  size_t pruned_by_promise = 0;
  // Points that were skipped, and why.
  std::vector<std::string> notes;
};

class PlanSearch {
 public:
  PlanSearch(SearchedModel model, const price::CostModel& costs, PlanSearchOptions options);

  // Runs the search. Fails with Diag::kInfeasible if nothing fits; the error states the smallest
  // peak and its parts.
  Result<SearchResult> Run();
  // Evaluates one point, or only with small models.
  Result<TriedPoint> Try(const SearchPoint& point) { return evaluator_.Try(point); }
  Result<StepOutcome> Promise(const SearchPoint& point) { return evaluator_.Promise(point); }
  Result<StepBounds> LeastBounds(const SearchPoint& point) {
    return evaluator_.LeastBounds(WithOneReplica(point));
  }
  // All points of presets.
  std::vector<SearchPoint> Space() const;

 private:
  // kDone: simulated, or rejected by a pass. kBeaten and kPromisedWorse: pruned by bounds, or by a
  // promise.
  enum class Fate : uint8_t { kOpen, kDone, kBeaten, kPromisedWorse };
  // A point to try, with its bounds and the promise of small models.
  struct Candidate {
    SearchPoint point;
    StepBounds least = {};
    std::optional<StepOutcome> promise = {};
    Fate fate = Fate::kOpen;

    Nanos expected() const { return promise ? promise->step : least.compute; }
    Nanos least_step() const {
      return promise ? std::max(promise->bounds.step, least.compute) : least.compute;
    }
    Bytes least_peak() const {
      return promise ? std::max(promise->bounds.peak, least.peak) : least.peak;
    }
    bool PromisesToFit(Bytes budget) const;
  };

  ArrangementSpace Arrangeable() const;
  void Bound();
  void SetBounds(Candidate& candidate, const Result<StepBounds>& least);
  Candidate* Next();
  void SetPromise(Candidate& candidate, Result<StepOutcome> promised);
  // The candidates of an arrangement are promised together: they share the lowered graphs of its
  // small models.
  using Promises = std::map<SearchPoint, Result<StepOutcome>>;
  std::vector<SearchPoint> Unpromised(const Arrangement& arrangement) const;
  Promises PromiseAll(const std::vector<SearchPoint>& points);
  void Settle(Candidate& candidate);
  // Starts threads for the candidates that probably follow this one.
  void WorkAhead(const Candidate& current);
  // Prunes the candidate if the tried point, which fits, beats its bounds or its promise.
  static void Compare(const TriedPoint& tried, Candidate& candidate);
  void AddAutomatic();
  void AddOverlap();
  // Simulates the pipelines whose predictions no tried point beats, the fastest first.
  void AddPipelines();
  void KeepPipeline(const SearchPoint& point, Result<TriedPoint> tried);
  bool IsBeaten(const PredictedPipeline& pipeline) const;
  std::optional<MethodChoice> CompareMethods();
  Failure NothingFits();
  void Note(const SearchPoint& point, const Diagnostics& why);
  void Keep(TriedPoint tried);
  void Report(std::string_view doing) const;
  void Report(std::string_view doing, size_t done, size_t all) const;
  std::vector<TriedPoint> Front() const;

  PlanSearchOptions options_;
  PointEvaluator evaluator_;
  std::vector<Candidate> candidates_;
  // Results of other threads. The search uses them in its own order, so they do not change it.
  std::map<SearchPoint, std::future<Result<TriedPoint>>> tried_ahead_;
  std::map<Arrangement, std::future<Promises>> promised_ahead_;
  std::vector<TriedPoint> tried_;
  std::optional<size_t> best_;
  std::optional<BestPipeline> pipeline_;
  // Number of points that are not candidates. The second one excludes simulated points.
  size_t others_ = 0;
  size_t others_pruned_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace heddle::search
