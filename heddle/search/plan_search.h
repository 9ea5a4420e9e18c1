// PlanSearch: how to train a model on so many devices, and what that will be like.
//
// A point of the space is an arrangement of ranks, how the model is placed on it, what backward computes again, and whether gathered
// weights stay. What a point comes to is found as it will be: its passes run, and the graph that comes out is simulated. Most points
// are not worth that. Layers repeat, so that two small models tell what no schedule of the large one can go below; a point whose
// bounds are no better than what is known is pruned, and the rest are tried in the order of what the small models promise.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "heddle/compile/compile.h"
#include "heddle/search/arrangement.h"

namespace heddle {

// Which step of a model is captured.
struct StepRequest {
  // Of all ranks, in one pass through the model.
  int64_t sequences = 1;
  // For sequence parallelism: norms work apart.
  bool norms_apart = false;
  // Gradients are added to those before; the optimizer follows.
  bool accumulates = false;
  bool updates = true;
  int64_t layers = 1;
  auto operator<=>(const StepRequest&) const = default;
};

struct SearchedModel {
  int64_t layers = 1;
  // The fewest in which every kind of layer is followed by one of its kind.
  int64_t small_layers = 1;
  std::function<Result<Module>(const StepRequest&)> capture;
  std::function<Result<Plan>(const Graph&, const Arrangement&)> preset;
  // Degrees of tensor parallelism that it has.
  std::function<bool(int64_t)> may_split;
};

enum class PlacedBy : uint8_t { kPreset, kAuto };

struct SearchPoint {
  Arrangement arrangement;
  PlacedBy placed = PlacedBy::kPreset;
  // Of `checkpoint` and `reshard-after-forward`.
  std::string policy = "none";
  std::string reshard = "default";
  auto operator<=>(const SearchPoint&) const = default;
};
std::string Format(const SearchPoint& point);

struct PointOutcome {
  // Of all micro-batches and the optimizer.
  Nanos step = {};
  Nanos exposed = {};
  Bytes peak = {};
  // Bounds (StepOutcome).
  Nanos compute = {};
  Bytes floor = {};
  bool operator==(const PointOutcome&) const = default;
};

struct TriedPoint {
  SearchPoint point;
  PointOutcome outcome;
  Plan plan;
};

struct PlanSearchOptions {
  int64_t devices = 1;
  // Sequences of a step, of all ranks.
  int64_t global_batch = 1;
  Bytes budget;
  // Placements are found by the solver, too.
  bool automatic = true;
  double solver_seconds = 2;
  // Points are dealt with one after the other: how many are, of how many, and the best so far, or null.
  std::function<void(size_t done, size_t all, const TriedPoint* best)> progress = {};
};

struct SearchResult {
  // Those that fit, from the fastest on, without those that another beats in time and memory. The first is the answer.
  std::vector<TriedPoint> front;
  size_t points = 0;
  size_t tried = 0;
  size_t pruned = 0;
  // What was left out, and why.
  std::vector<std::string> notes;
};

class PlanSearch {
 public:
  PlanSearch(SearchedModel model, const CostModel& costs, PlanSearchOptions options);

  // Diag::kInfeasible, with the least peak that was met, if nothing fits.
  Result<SearchResult> Run();
  // What one point comes to.
  Result<TriedPoint> Try(const SearchPoint& point);
  // What small models promise of it; its bounds are exact.
  Result<PointOutcome> Promise(const SearchPoint& point) { return Extrapolate(point, true); }
  // All points of presets.
  std::vector<SearchPoint> Space() const;

 private:
  struct Candidate;

  Result<const Module*> Captured(const StepRequest& request);
  Result<Plan> PlanFor(const SearchPoint& point, int64_t layers);
  Result<const Module*> Lowered(const SearchPoint& point, const StepRequest& request);
  Result<StepOutcome> Finish(const SearchPoint& point, const StepRequest& request, bool schedules);
  Result<PointOutcome> Evaluate(const SearchPoint& point, int64_t layers, bool schedules = true);
  // By two small models.
  Result<PointOutcome> Extrapolate(const SearchPoint& point, bool schedules);
  StepRequest RequestFor(const SearchPoint& point, int64_t layers) const;

  void Bound(std::vector<Candidate>& candidates);
  Candidate* Next(std::vector<Candidate>& candidates);
  void Settle(Candidate& candidate);
  void AddAutomatic();
  Status FindPlacement(const SearchPoint& point);
  void FillFront(std::vector<Candidate>& candidates);
  Failure NothingFits(std::vector<Candidate>& candidates);
  void Note(const SearchPoint& point, const Diagnostics& why);
  void Keep(TriedPoint tried);
  std::vector<TriedPoint> Front() const;

  SearchedModel model_;
  const CostModel& costs_;
  PlanSearchOptions options_;
  std::map<StepRequest, Module> captured_;
  // The last one: points of one arrangement come one after the other.
  std::map<std::tuple<Arrangement, PlacedBy, StepRequest>, Module> lowered_;
  std::map<Arrangement, Plan> found_;
  std::vector<TriedPoint> tried_;
  std::optional<size_t> best_;
  size_t pruned_ = 0;
  std::vector<std::string> notes_;
};

}  // namespace heddle
