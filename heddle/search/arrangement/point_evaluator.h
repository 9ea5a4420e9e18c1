// PointEvaluator: what a way to train a model comes to.
//
// It is found as it will be: the passes of a point run, and the graph that comes out is simulated. Layers repeat, so that two small
// models tell most of what the large one comes to: what no schedule of it can go below, and what to expect.
#pragma once

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <tuple>

#include "heddle/price/cost/step_summary.h"
#include "heddle/search/arrangement/arrangement.h"
#include "heddle/search/find_placements.h"

namespace heddle::search {

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
  std::function<Result<compile::Plan>(const Graph&, const Arrangement&)> preset;
  // Degrees of tensor parallelism that it has.
  std::function<bool(int64_t)> may_split;
  // Of a mixture; 0 for none.
  int64_t experts = 0;
  // There is one step, of the whole batch: no micro-batches.
  bool one_pass = false;
  // Tokens of a sequence, for the plans.
  int64_t seq_len = 1;
};

enum class PlacedBy : uint8_t { kPreset, kAuto };
// Launches one unit ahead, as FSDP2's; or where a simulation of the cluster is shortest.
enum class ScheduledBy : uint8_t { kFsdp, kOverlap };

struct SearchPoint {
  Arrangement arrangement;
  PlacedBy placed = PlacedBy::kPreset;
  // Of `checkpoint` and `reshard-after-forward`.
  std::string policy = "none";
  std::string reshard = "default";
  ScheduledBy scheduled = ScheduledBy::kFsdp;
  auto operator<=>(const SearchPoint&) const = default;
};
std::string Format(const SearchPoint& point);

struct TriedPoint {
  SearchPoint point;
  // For all micro-batches and the optimizer.
  StepOutcome outcome;
  compile::Plan plan;
};

class PointEvaluator {
 public:
  // `costs`, which outlives this, is of `cluster`, a name or a file.
  PointEvaluator(SearchedModel model, const price::CostModel& costs, std::string cluster,
                 int64_t global_batch)
      : model_(std::move(model)),
        evaluator_(costs),
        cluster_(std::move(cluster)),
        global_batch_(global_batch) {}

  const SearchedModel& model() const { return model_; }
  const price::CostModel& costs() const { return evaluator_.costs(); }

  // What it comes to.
  Result<TriedPoint> Try(const SearchPoint& point);
  // What small models promise of it. Bounds are bounds of the large one.
  Result<StepOutcome> Promise(const SearchPoint& point);
  // At least so much time does a rank compute, however its step is scheduled.
  Result<Nanos> LeastCompute(const SearchPoint& point);
  // Where memory goes.
  Result<price::StepSummary> Summary(const SearchPoint& point);
  // Lets the solver place the model on the mesh of a point, for its schedule. Other points of that mesh have its placements, too, if they
  // ask for them.
  Status Place(const SearchPoint& point, const Allowance& allowance);

 private:
  using LoweredKey = std::tuple<Arrangement, PlacedBy, StepRequest>;

  StepRequest RequestFor(const SearchPoint& point, int64_t layers) const;
  Result<const Module*> Captured(const StepRequest& request);
  Result<compile::Plan> PlanFor(const SearchPoint& point, int64_t layers);
  // The decisions of a plan for the point.
  compile::PlanDecisions DecisionsFor(const SearchPoint& point) const;
  Result<const Module*> Lowered(const SearchPoint& point, const StepRequest& request);
  Result<Evaluation> Finished(const SearchPoint& point, const StepRequest& request, bool schedules);
  Result<StepOutcome> Evaluate(const SearchPoint& point, int64_t layers);

  SearchedModel model_;
  Evaluator evaluator_;
  std::string cluster_;
  int64_t global_batch_;
  std::map<StepRequest, Module> captured_;
  // The last ones, in the order in which they came: points of one arrangement come near each other.
  std::map<LoweredKey, Module> lowered_;
  std::deque<LoweredKey> order_;
  size_t kept_nodes_ = 0;
  std::map<Arrangement, compile::Plan> found_;
};

}  // namespace heddle::search
