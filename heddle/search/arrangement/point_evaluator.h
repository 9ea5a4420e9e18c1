// PointEvaluator: evaluates a way to train a model.
//
// It runs the passes of a point and simulates the resulting graph. Because layers repeat, two small
// models predict most of the large one: a lower bound over all schedules, and an expected outcome
// (a promise). Captured and lowered steps are cached. Threads may simulate points together.
#pragma once

#include <deque>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "heddle/price/cost/step_summary.h"
#include "heddle/search/arrangement/arrangement.h"
#include "heddle/search/arrangement/model_costs.h"
#include "heddle/search/find_placements.h"

namespace heddle::search {

// The policies of the pass `checkpoint` that a search tries.
inline constexpr std::string_view kCheckpointPolicies[] = {"none", "min-cut", "selective", "full"};

// Margin for promises that are too high, in hundredths of time and of memory. The exhaustive test
// checks that none is higher by more. A promise that is too low prunes nothing wrongly.
inline constexpr int64_t kPromiseError = 3;
// The promise minus the margin, and plus it.
template <typename T>
T AtLeast(T promised, int64_t error = kPromiseError) {
  return {promised.value / 100 * (100 - error)};
}
template <typename T>
T WithMargin(T promised) {
  return {promised.value / 100 * (100 + kPromiseError)};
}

// Identifies a captured step of a model.
struct StepRequest {
  // Sequences over all ranks, per micro-batch.
  int64_t sequences = 1;
  // With sequence parallelism, gradients of norms are summed separately.
  bool norms_apart = false;
  // Attention runs in kernels that can have a part of the queries.
  bool splits_queries = false;
  // One of several micro-batches: the loss is divided by the number of tokens of all.
  bool micro_batch = false;
  // Adds gradients to those of earlier micro-batches; the optimizer runs after the last.
  bool accumulates = false;
  bool updates = true;
  int64_t layers = 1;
  auto operator<=>(const StepRequest&) const = default;
};

struct SearchedModel {
  int64_t layers = 1;
  // The fewest layers in which every kind of layer is followed by one of its kind.
  int64_t small_layers = 1;
  std::function<Result<Module>(const StepRequest&)> capture;
  std::function<Result<compile::Plan>(const Graph&, const Arrangement&)> preset;
  // Whether the model supports the degrees of tensor and context parallelism.
  std::function<bool(const Arrangement&)> supports;
  // Number of experts of a mixture; 0: none.
  int64_t experts = 0;
  // Whether every step is one pass over the batch, without micro-batches.
  bool one_pass = false;
  // Tokens per sequence, for the plans.
  int64_t seq_len = 1;
};

enum class PlacedBy : uint8_t { kPreset, kAuto };
// Launches one unit ahead, like FSDP2, or by simulation on the cluster.
enum class ScheduledBy : uint8_t { kFsdp, kOverlap };

struct SearchPoint {
  Arrangement arrangement;
  PlacedBy placed = PlacedBy::kPreset;
  // Options of the passes `checkpoint` and `reshard-after-forward`.
  std::string policy = "none";
  std::string reshard = "default";
  ScheduledBy scheduled = ScheduledBy::kFsdp;
  // Empty without a pipeline: the schedule (core/pipeline/schedule.h), and the first position of
  // each stage.
  std::string schedule = {};
  std::vector<int64_t> first_positions = {};
  auto operator<=>(const SearchPoint&) const = default;
};
std::string Format(const SearchPoint& point);
// The point with one replica, whose bounds hold for the given point.
SearchPoint WithOneReplica(SearchPoint point);

struct TriedPoint {
  SearchPoint point;
  // The outcome of the whole step, with all micro-batches and the optimizer.
  StepOutcome outcome;
  compile::Plan plan;
};

class PointEvaluator {
 public:
  // `costs` is the cost model of `cluster`, a name or a file, and must outlive this object.
  PointEvaluator(SearchedModel model, const price::CostModel& costs, std::string cluster,
                 int64_t global_batch)
      : model_(std::move(model)),
        evaluator_(costs),
        cluster_(std::move(cluster)),
        global_batch_(global_batch) {}

  const SearchedModel& model() const { return model_; }
  const price::CostModel& costs() const { return evaluator_.costs(); }
  int64_t global_batch() const { return global_batch_; }

  // Captures the steps that LeastBounds, Promise or Try needs for a point. They do so otherwise.
  enum class Purpose : uint8_t { kBounds, kPromise, kTry };
  Status Capture(const SearchPoint& point, Purpose purpose);
  // Simulates a point; of a pipeline, all coordinates together. Several threads may call Try,
  // Promise and LeastBounds.
  Result<TriedPoint> Try(const SearchPoint& point);
  // Predicts a point from small models. The bounds are bounds of the large model.
  Result<StepOutcome> Promise(const SearchPoint& point);
  // Lower bounds of compute and peak over all schedules.
  Result<StepBounds> LeastBounds(const SearchPoint& point);
  // The costs of the micro-batches of a pipeline, from small models. The point's schedule and
  // stages are not used. The model must have more layers than the small models.
  Result<ModelCosts> PipelineCosts(const SearchPoint& point);
  // Where memory goes.
  Result<price::StepSummary> Summary(const SearchPoint& point);
  // Lets the solver place the model on the mesh of a point, for its schedule. Other points with
  // kAuto on this mesh use the same placements.
  Status Place(const SearchPoint& point, const WorkAmount& work);

 private:
  using LoweredKey = std::tuple<Arrangement, PlacedBy, StepRequest>;
  using LoweredModule = Result<std::shared_ptr<const Module>>;

  StepRequest RequestFor(const SearchPoint& point, int64_t layers) const;
  Result<const Module*> Captured(const StepRequest& request);
  // The sizes of two small models, the smaller with `least` layers, or only of the whole model.
  std::vector<int64_t> SmallLayers(int64_t least) const;
  StepRequest BoundRequest(const SearchPoint& point, int64_t layers) const;
  Result<compile::Plan> PlanFor(const SearchPoint& point, int64_t layers);
  // Returns the decisions of a plan for the point.
  compile::PlanDecisions DecisionsFor(const SearchPoint& point) const;
  LoweredModule Lowered(const SearchPoint& point, const StepRequest& request);
  LoweredModule Lower(const SearchPoint& point, const StepRequest& request);
  void DropOldModules();
  Result<Evaluation> Finished(const SearchPoint& point, const StepRequest& request);
  Result<StepOutcome> Evaluate(const SearchPoint& point, int64_t layers);
  Result<StepOutcome> EvaluatePipeline(const SearchPoint& point, const compile::Plan& plan);

  SearchedModel model_;
  Evaluator evaluator_;
  std::string cluster_;
  int64_t global_batch_;
  std::mutex captured_mutex_;
  std::map<StepRequest, Module> captured_;
  // Plans of presets, by arrangement and number of layers, and of the solver.
  std::mutex plans_mutex_;
  std::map<std::pair<Arrangement, int64_t>, compile::Plan> presets_;
  std::map<Arrangement, compile::Plan> found_;
  // The most recent modules, in order: points of one arrangement are evaluated together. The first
  // thread that needs a module makes it.
  std::mutex lowered_mutex_;
  std::map<LoweredKey, std::shared_future<LoweredModule>> lowered_;
  std::deque<std::pair<LoweredKey, size_t>> order_;
  size_t kept_nodes_ = 0;
};

}  // namespace heddle::search
