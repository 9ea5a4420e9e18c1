#include "heddle/search/arrangement/point_evaluator.h"

#include <algorithm>
#include <utility>

#include "heddle/compile/adjust_pipeline.h"
#include "heddle/compile/compile.h"
#include "heddle/compile/passes/memory/memory_passes.h"
#include "heddle/compile/passes/passes.h"
#include "heddle/search/evaluate/simulated_module.h"

namespace heddle::search {
namespace {

// Maximum number of nodes of all cached lowered modules.
constexpr size_t kMostNodes = 400'000;

std::string MemoryPasses(const SearchPoint& point) {
  return point.policy == "none" ? "clean" : compile::CheckpointPipeline(point.policy);
}

std::string PipelineOf(const SearchPoint& point) {
  return MemoryPasses(point) + (point.scheduled == ScheduledBy::kOverlap ? ", overlap" : ", fsdp");
}

// The passes that every schedule of the point needs.
std::string BoundPipelineOf(const SearchPoint& point) {
  return MemoryPasses(point) + ", reshard-after-forward, dce";
}

// Extends figures of two small models, which differ by a layer, to the large model.
class Line {
 public:
  Line(int64_t larger, int64_t layers) : more_(layers - larger) {}
  template <typename T>
  T operator()(T smaller, T larger) const {
    return larger + (larger - smaller) * more_;
  }

 private:
  int64_t more_;
};

Result<compile::Pipeline> Parse(std::string_view text) {
  return compile::ParsePipeline(text, compile::Passes(), compile::Author::kProgram);
}

// Removes `clean` from the beginning of a pipeline for clean modules, which it would not change.
Status DropClean(compile::Pipeline& pipeline) {
  HEDDLE_TRY(compile::Pipeline clean, Parse("clean"));
  const std::string text = Format(clean);
  auto first =
      std::ranges::find_if(pipeline, [&](const auto& item) { return Format(item) != text; });
  pipeline.erase(pipeline.begin(), first);
  return Done{};
}

// Returns the pipeline of the point for a lowered module.
Result<compile::Pipeline> ForLowered(std::string_view text, const SearchPoint& point) {
  HEDDLE_TRY(compile::Pipeline pipeline, Parse(text));
  HEDDLE_RETURN_IF_ERROR(DropClean(pipeline));
  compile::PipelineChanges changes;
  changes.settings = {{"reshard", {"reshard-after-forward"}, "policy", point.reshard}};
  HEDDLE_RETURN_IF_ERROR(compile::AdjustPipeline(changes, compile::Passes(), pipeline));
  return pipeline;
}

}  // namespace

std::string Format(const SearchPoint& point) {
  const bool automatic = point.placed == PlacedBy::kAuto;
  std::string out = Format(point.arrangement, /*with_method=*/!automatic);
  const bool pipeline = point.arrangement.pipeline > 1;
  if (pipeline) out += fmt::format(", {}", point.schedule);
  if (std::ssize(point.first_positions) > point.arrangement.pipeline)
    out += fmt::format(" with {} stages", point.first_positions.size());
  out += automatic ? ", auto" : "";
  if (point.policy != "none") out += ", checkpoint " + point.policy;
  if (point.reshard != "default" && !pipeline) out += ", reshard " + point.reshard;
  if (point.scheduled == ScheduledBy::kOverlap) out += ", overlap";
  return out;
}

// Replicas do not change the work of forward and backward, and the optimizer does the least work on
// the least state if no two ranks have the same part of it. Weights that are not sharded are
// gathered at most once.
SearchPoint WithOneReplica(SearchPoint point) {
  if (!point.arrangement.shards_params()) point.reshard = "never";
  point.arrangement.shard *= std::exchange(point.arrangement.replicate, 1);
  return point;
}

StepRequest PointEvaluator::RequestFor(const SearchPoint& point, int64_t layers) const {
  const Arrangement& arrangement = point.arrangement;
  const bool preset = point.placed == PlacedBy::kPreset;
  return {.sequences = global_batch_ / arrangement.micro_batches,
          .norms_apart = arrangement.tensor > 1 && preset,
          .splits_queries = arrangement.context > 1 && !arrangement.context_heads && preset,
          .micro_batch = arrangement.micro_batches > 1,
          .accumulates = arrangement.micro_batches > 1 && arrangement.pipeline == 1,
          .updates = true,
          .layers = layers};
}

Result<const Module*> PointEvaluator::Captured(const StepRequest& request) {
  std::scoped_lock lock(captured_mutex_);
  auto known = captured_.find(request);
  if (known == captured_.end()) {
    HEDDLE_TRY(Module module, model_.capture(request));
    known = captured_.emplace(request, std::move(module)).first;
  }
  return &known->second;
}

Result<compile::Plan> PointEvaluator::PlanFor(const SearchPoint& point, int64_t layers) {
  const std::pair key(point.arrangement, layers);
  {
    std::scoped_lock lock(plans_mutex_);
    if (point.placed == PlacedBy::kAuto) return found_.at(point.arrangement);
    if (auto known = presets_.find(key); known != presets_.end()) return known->second;
  }
  HEDDLE_TRY(const Module* module, Captured(RequestFor(point, layers)));
  HEDDLE_TRY(compile::Plan plan, model_.preset(module->graphs[0], point.arrangement));
  std::scoped_lock lock(plans_mutex_);
  return presets_.emplace(key, std::move(plan)).first->second;
}

compile::PlanDecisions PointEvaluator::DecisionsFor(const SearchPoint& point) const {
  compile::PlanDecisions out;
  // A step of one pass is captured: no plan changes its batch or its norms.
  if (!model_.one_pass) {
    const int64_t micro_batches = point.arrangement.micro_batches;
    const bool pipeline = point.arrangement.pipeline > 1;
    out.batch = {global_batch_, model_.seq_len, pipeline ? 1 : micro_batches};
    if (pipeline) out.stages = {point.first_positions, point.schedule, micro_batches};
    // Stated only if it differs from the default for the mesh (planned_step.cc).
    bool apart = RequestFor(point, model_.layers).norms_apart;
    if (apart != MeshOf(point.arrangement).Find("tp").has_value()) out.norms_apart = apart;
  }
  out.cluster = cluster_;
  out.pipeline = point.scheduled == ScheduledBy::kOverlap ? "overlap" : "fsdp";
  out.reshard = point.reshard;
  out.checkpoint = point.policy;
  return out;
}

std::vector<int64_t> PointEvaluator::SmallLayers(int64_t least) const {
  if (model_.layers <= least + 1) return {model_.layers};
  return {least, least + 1};
}

// With several micro-batches the optimizer, a small part, is left out, so that one graph serves
// all.
StepRequest PointEvaluator::BoundRequest(const SearchPoint& point, int64_t layers) const {
  StepRequest request = RequestFor(point, layers);
  request.updates = point.arrangement.micro_batches == 1;
  return request;
}

Status PointEvaluator::Capture(const SearchPoint& point, Purpose purpose) {
  if (purpose == Purpose::kBounds) {
    for (int64_t layers : SmallLayers(model_.small_layers))
      HEDDLE_RETURN_IF_ERROR(Captured(BoundRequest(point, layers)));
    return Done{};
  }
  const bool whole = purpose == Purpose::kTry;
  for (int64_t layers : whole ? std::vector{model_.layers} : SmallLayers(model_.small_layers + 1)) {
    StepRequest request = RequestFor(point, layers);
    HEDDLE_RETURN_IF_ERROR(Captured(request));
    request.updates = false;
    if (request.accumulates) HEDDLE_RETURN_IF_ERROR(Captured(request));
  }
  return Done{};
}

PointEvaluator::LoweredModule PointEvaluator::Lowered(const SearchPoint& point,
                                                      const StepRequest& request) {
  LoweredKey key(point.arrangement, point.placed, request);
  std::unique_lock lock(lowered_mutex_);
  auto [known, added] = lowered_.try_emplace(key);
  if (added)
    known->second = std::async(std::launch::deferred, [this, point, request] {
                      return Lower(point, request);
                    }).share();
  std::shared_future<LoweredModule> lowered = known->second;
  lock.unlock();
  LoweredModule module = lowered.get();
  if (!added || !module.ok()) return module;
  lock.lock();
  size_t nodes = (*module)->graphs[0].node_count();
  order_.emplace_back(key, nodes);
  kept_nodes_ += nodes;
  DropOldModules();
  return module;
}

// Keeps the newest module, however large it is.
void PointEvaluator::DropOldModules() {
  while (kept_nodes_ > kMostNodes && order_.size() > 1) {
    kept_nodes_ -= order_.front().second;
    lowered_.erase(order_.front().first);
    order_.pop_front();
  }
}

PointEvaluator::LoweredModule PointEvaluator::Lower(const SearchPoint& point,
                                                    const StepRequest& request) {
  HEDDLE_TRY(const Module* captured, Captured(request));
  HEDDLE_TRY(compile::Plan plan, PlanFor(point, request.layers));
  Module module = *captured;
  HEDDLE_RETURN_IF_ERROR(compile::Lower(module, plan));
  HEDDLE_TRY(compile::Pipeline clean, Parse("clean"));
  HEDDLE_RETURN_IF_ERROR(compile::RunPipeline(module, clean, evaluator_.Unchecked()));
  return std::make_shared<const Module>(std::move(module));
}

Result<Evaluation> PointEvaluator::Finished(const SearchPoint& point, const StepRequest& request) {
  HEDDLE_TRY(std::shared_ptr<const Module> lowered, Lowered(point, request));
  HEDDLE_TRY(compile::Pipeline pipeline, ForLowered(PipelineOf(point), point));
  return evaluator_.Run(*lowered, pipeline);
}

Result<StepOutcome> PointEvaluator::Evaluate(const SearchPoint& point, int64_t layers) {
  StepRequest request = RequestFor(point, layers);
  HEDDLE_TRY(Evaluation last, Finished(point, request));
  StepOutcome out = last.outcome;
  int64_t others = point.arrangement.micro_batches - 1;
  if (others == 0) return out;
  request.updates = false;
  HEDDLE_TRY(Evaluation evaluated, Finished(point, request));
  const StepOutcome& other = evaluated.outcome;
  out.step += other.step * others;
  out.exposed += other.exposed * others;
  out.context.bytes += other.context.bytes * others;
  out.context.exposed += other.context.exposed * others;
  out.bounds.compute += other.bounds.compute * others;
  out.bounds.step += other.bounds.step * others;
  out.peak = std::max(out.peak, other.peak);
  out.bounds.peak = std::max(out.bounds.peak, other.bounds.peak);
  return out;
}

// Bounds are maxima of sums that grow linearly with the layers, so the line through two small
// models never exceeds them. Times and peaks follow it closely from three layers of a kind on: with
// two, no layer has the gathers of the next one and the gradients of the previous one in flight.
Result<StepOutcome> PointEvaluator::Promise(const SearchPoint& point) {
  std::vector<int64_t> small = SmallLayers(model_.small_layers + 1);
  HEDDLE_TRY(StepOutcome a, Evaluate(point, small[0]));
  if (small.size() == 1) return a;
  HEDDLE_TRY(StepOutcome b, Evaluate(point, small[1]));
  Line line(small[1], model_.layers);
  return StepOutcome{.step = line(a.step, b.step),
                     .exposed = line(a.exposed, b.exposed),
                     .peak = line(a.peak, b.peak),
                     .context = {.bytes = line(a.context.bytes, b.context.bytes),
                                 .exposed = line(a.context.exposed, b.context.exposed)},
                     .bounds = {.compute = line(a.bounds.compute, b.bounds.compute),
                                .step = line(a.bounds.step, b.bounds.step),
                                .peak = line(a.bounds.peak, b.bounds.peak)}};
}

Result<StepBounds> PointEvaluator::LeastBounds(const SearchPoint& point) {
  auto bounds_with = [&](int64_t layers) -> Result<StepBounds> {
    HEDDLE_TRY(std::shared_ptr<const Module> lowered, Lowered(point, BoundRequest(point, layers)));
    HEDDLE_TRY(compile::Pipeline pipeline, ForLowered(BoundPipelineOf(point), point));
    HEDDLE_TRY(StepBounds bounds, evaluator_.Bounds(*lowered, pipeline));
    return StepBounds{.compute = bounds.compute * point.arrangement.micro_batches,
                      .peak = bounds.peak};
  };
  std::vector<int64_t> small = SmallLayers(model_.small_layers);
  HEDDLE_TRY(StepBounds a, bounds_with(small[0]));
  if (small.size() == 1) return a;
  HEDDLE_TRY(StepBounds b, bounds_with(small[1]));
  Line line(small[1], model_.layers);
  return StepBounds{.compute = line(a.compute, b.compute), .peak = line(a.peak, b.peak)};
}

// The costs of a stage do not depend on the weights that ranks keep gathered.
Result<ModelCosts> PointEvaluator::PipelineCosts(const SearchPoint& point) {
  SearchPoint small = point;
  small.reshard = "default";
  auto measure = [&](int64_t layers) -> Result<SmallModel> {
    HEDDLE_TRY(std::shared_ptr<const Module> lowered, Lowered(small, RequestFor(small, layers)));
    HEDDLE_TRY(compile::Pipeline pipeline, ForLowered(BoundPipelineOf(small), small));
    HEDDLE_TRY(Evaluation one, evaluator_.Run(*lowered, pipeline));
    return MeasureSmallModel(one, costs());
  };
  HEDDLE_TRY(SmallModel smaller, measure(model_.small_layers));
  HEDDLE_TRY(SmallModel larger, measure(model_.small_layers + 1));
  return ExtendCosts(smaller, larger, model_.layers);
}

// The bound of a pipeline is that of the simulated coordinates together.
Result<StepOutcome> PointEvaluator::EvaluatePipeline(const SearchPoint& point,
                                                     const compile::Plan& plan) {
  HEDDLE_TRY(const Module* captured, Captured(RequestFor(point, model_.layers)));
  Module module = *captured;
  compile::CompileOptions how;
  how.manager = evaluator_.Unchecked();
  HEDDLE_RETURN_IF_ERROR(compile::Compile(module, plan, how));
  HEDDLE_TRY(SimulatedModule simulated, SimulateModule(Format(point), std::move(module), costs(),
                                                       {}, PipelineFactsOf(plan.decisions)));
  HEDDLE_CHECK(simulated.pipeline.has_value(), "the graphs have no coordinates");
  const price::PipelineSimulation& pipeline = *simulated.pipeline;
  const price::Timeline& slowest = simulated.simulations[pipeline.slowest].timeline;
  StepOutcome out{.step = pipeline.step,
                  .exposed = pipeline.step - slowest.compute.busy,
                  .bounds = {.step = pipeline.bound}};
  for (const price::Simulation& one : simulated.simulations)
    out.peak = std::max(out.peak, one.peak);
  return out;
}

Result<TriedPoint> PointEvaluator::Try(const SearchPoint& point) {
  HEDDLE_TRY(compile::Plan plan, PlanFor(point, model_.layers));
  plan.decisions = DecisionsFor(point);
  const bool pipeline = point.arrangement.pipeline > 1;
  HEDDLE_TRY(StepOutcome outcome,
             pipeline ? EvaluatePipeline(point, plan) : Evaluate(point, model_.layers));
  return TriedPoint{point, outcome, std::move(plan)};
}

Result<price::StepSummary> PointEvaluator::Summary(const SearchPoint& point) {
  HEDDLE_TRY(Evaluation whole, Finished(point, RequestFor(point, model_.layers)));
  return price::Summarize(whole.module, whole.module.graphs[0]);
}

Status PointEvaluator::Place(const SearchPoint& point, const WorkAmount& work) {
  HEDDLE_TRY(const Module* module, Captured(RequestFor(point, model_.layers)));
  compile::Plan plan;
  plan.mesh = MeshOf(point.arrangement);
  plan.automatic = true;
  plan.decisions.reshard = point.reshard;
  PlanRequest request;
  request.automatic.work = work;
  request.tries_plans = true;
  compile::CompileOptions how;
  how.pipeline = PipelineOf(point);
  how.manager = evaluator_.Unchecked();
  HEDDLE_TRY(FoundPlacements found, FindPlacements(*module, plan, request, how));
  std::scoped_lock lock(plans_mutex_);
  found_[point.arrangement] = std::move(found.plan);
  return Done{};
}

}  // namespace heddle::search
