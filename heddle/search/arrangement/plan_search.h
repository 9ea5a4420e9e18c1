// PlanSearch: how to train a model on so many devices, and what that will be like.
//
// A point of the space is an arrangement of ranks, how the model is placed on it, what backward computes again, whether gathered
// weights stay, and who schedules collectives. Most points are not worth trying: small models tell what a point cannot go below (evaluator.h). A point whose bounds
// are no better than what is known is pruned, and the rest are tried in the order of what the small models promise.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "heddle/search/arrangement/point_evaluator.h"

namespace heddle::search {

// How far a search is: points that are dealt with, of how many; what it does now; the best so far, or null.
struct SearchProgress {
  size_t done = 0;
  size_t all = 0;
  std::string_view doing;
  const TriedPoint* best = nullptr;
};

struct PlanSearchOptions {
  int64_t devices = 1;
  // Sequences of a step, of all ranks.
  int64_t global_batch = 1;
  Bytes budget;
  // A name or a file.
  std::string cluster = "h100-8x";
  // Placements are found by the solver, too.
  bool automatic = true;
  // The fastest is also scheduled by `overlap`.
  bool overlap = true;
  // For each mesh.
  Allowance solver = AutoOptions().allowance;
  std::function<void(const SearchProgress&)> progress = {};
};

struct SearchResult {
  // The plans that fit and that no other plan beats: no other that fits is at least as fast and needs
  // at most as much memory. From the fastest to the smallest; the first is the answer.
  std::vector<TriedPoint> front;
  // Of presets, of the solver and of `overlap`.
  size_t points = 0;
  // Simulated whole.
  size_t tried = 0;
  // Not simulated whole: beaten by their bounds, or by the promise of small models.
  size_t pruned = 0;
  size_t pruned_by_promise = 0;
  // What was left out, and why.
  std::vector<std::string> notes;
};

class PlanSearch {
 public:
  PlanSearch(SearchedModel model, const price::CostModel& costs, PlanSearchOptions options);

  // Diag::kInfeasible, with the least peak there is and what it is made of, if nothing fits.
  Result<SearchResult> Run();
  // What one point comes to, and what small models promise of it.
  Result<TriedPoint> Try(const SearchPoint& point) { return evaluator_.Try(point); }
  Result<StepOutcome> Promise(const SearchPoint& point) { return evaluator_.Promise(point); }
  Result<StepBounds> LeastBounds(const SearchPoint& point) {
    return evaluator_.LeastBounds(WithOneReplica(point));
  }
  // All points of presets.
  std::vector<SearchPoint> Space() const;

 private:
  // kDone: tried, or refused by a pass. The others are pruned: by bounds, by a promise.
  enum class Fate : uint8_t { kOpen, kDone, kBeaten, kPromisedWorse };
  // A point that may be tried: its bounds, and the promise of small models.
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

  void Bound();
  Candidate* Next();
  void Promise(Candidate& candidate);
  void Settle(Candidate& candidate);
  // Closes the candidate if the point, which fits, beats its bounds or its promise.
  static void Compare(const TriedPoint& tried, Candidate& candidate);
  void AddAutomatic();
  void AddOverlap();
  Failure NothingFits();
  void Note(const SearchPoint& point, const Diagnostics& why);
  void Keep(TriedPoint tried);
  void Report(std::string_view doing) const;
  std::vector<TriedPoint> Front() const;

  PlanSearchOptions options_;
  PointEvaluator evaluator_;
  std::vector<Candidate> candidates_;
  std::vector<TriedPoint> tried_;
  std::optional<size_t> best_;
  // Points that are no candidates.
  size_t others_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace heddle::search
