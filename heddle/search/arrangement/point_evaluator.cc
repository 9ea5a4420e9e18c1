#include "heddle/search/arrangement/point_evaluator.h"

#include <algorithm>

#include "heddle/compile/adjust_pipeline.h"
#include "heddle/compile/passes/memory/memory_passes.h"
#include "heddle/compile/passes/passes.h"

namespace heddle::search {
namespace {

// Of lowered modules that are kept, together.
constexpr size_t kMostNodes = 400'000;
// What decides about memory, and a pipeline by its name; without `schedules` the first alone.
std::string PipelineOf(const SearchPoint& point, bool schedules) {
  std::string text = point.policy == "none" ? "clean" : compile::CheckpointPipeline(point.policy);
  if (!schedules) return text;
  return text + (point.scheduled == ScheduledBy::kOverlap ? ", overlap" : ", fsdp");
}

compile::OptionSetting ReshardOf(const SearchPoint& point) {
  return {"reshard", {"reshard-after-forward"}, "policy", point.reshard};
}

}  // namespace

std::string Format(const SearchPoint& point) {
  std::string out = Format(point.arrangement);
  out += point.placed == PlacedBy::kAuto ? ", auto" : "";
  if (point.policy != "none") out += ", checkpoint " + point.policy;
  if (point.reshard != "default") out += ", reshard " + point.reshard;
  if (point.scheduled == ScheduledBy::kOverlap) out += ", overlap";
  return out;
}

StepRequest PointEvaluator::RequestFor(const SearchPoint& point, int64_t layers) const {
  const Arrangement& arrangement = point.arrangement;
  return {.sequences = global_batch_ / arrangement.micro_batches,
          .norms_apart = arrangement.tensor > 1 && point.placed == PlacedBy::kPreset,
          .accumulates = arrangement.micro_batches > 1,
          .updates = true,
          .layers = layers};
}

Result<const Module*> PointEvaluator::Captured(const StepRequest& request) {
  auto known = captured_.find(request);
  if (known == captured_.end()) {
    HEDDLE_TRY(Module module, model_.capture(request));
    known = captured_.emplace(request, std::move(module)).first;
  }
  return &known->second;
}

Result<compile::Plan> PointEvaluator::PlanFor(const SearchPoint& point, int64_t layers) {
  if (point.placed == PlacedBy::kAuto) return found_.at(point.arrangement);
  HEDDLE_TRY(const Module* module, Captured(RequestFor(point, layers)));
  return model_.preset(module->graphs[0], point.arrangement);
}

compile::PlanDecisions PointEvaluator::DecisionsFor(const SearchPoint& point) const {
  compile::PlanDecisions out;
  // A step of one pass is captured: no plan changes its batch or its norms.
  if (!model_.one_pass) {
    out.batch = {global_batch_, model_.seq_len, point.arrangement.micro_batches};
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

Result<const Module*> PointEvaluator::Lowered(const SearchPoint& point,
                                              const StepRequest& request) {
  LoweredKey key(point.arrangement, point.placed, request);
  auto known = lowered_.find(key);
  if (known != lowered_.end()) return &known->second;
  HEDDLE_TRY(const Module* captured, Captured(request));
  HEDDLE_TRY(compile::Plan plan, PlanFor(point, request.layers));
  Module module = *captured;
  HEDDLE_RETURN_IF_ERROR(compile::Lower(module, plan));
  HEDDLE_TRY(compile::Pipeline clean,
             compile::ParsePipeline("clean", compile::Passes(), compile::Author::kProgram));
  HEDDLE_RETURN_IF_ERROR(compile::RunPipeline(module, clean, evaluator_.Unchecked()));
  kept_nodes_ += module.graphs[0].node_count();
  while (kept_nodes_ > kMostNodes && !order_.empty()) {
    auto oldest = lowered_.find(order_.front());
    kept_nodes_ -= oldest->second.graphs[0].node_count();
    lowered_.erase(oldest);
    order_.pop_front();
  }
  order_.push_back(key);
  return &lowered_.emplace(key, std::move(module)).first->second;
}

Result<Evaluation> PointEvaluator::Finished(const SearchPoint& point, const StepRequest& request,
                                            bool schedules) {
  HEDDLE_TRY(const Module* lowered, Lowered(point, request));
  HEDDLE_TRY(compile::Pipeline pipeline,
             compile::ParsePipeline(PipelineOf(point, schedules), compile::Passes(),
                                    compile::Author::kProgram));
  compile::PipelineChanges changes;
  if (schedules) changes.settings = {ReshardOf(point)};
  HEDDLE_RETURN_IF_ERROR(compile::AdjustPipeline(changes, compile::Passes(), pipeline));
  return evaluator_.Run(*lowered, pipeline);
}

Result<StepOutcome> PointEvaluator::Evaluate(const SearchPoint& point, int64_t layers) {
  StepRequest request = RequestFor(point, layers);
  HEDDLE_TRY(Evaluation last, Finished(point, request, true));
  StepOutcome out = last.outcome;
  int64_t others = point.arrangement.micro_batches - 1;
  if (others == 0) return out;
  request.updates = false;
  HEDDLE_TRY(Evaluation evaluated, Finished(point, request, true));
  const StepOutcome& other = evaluated.outcome;
  out.step += other.step * others;
  out.exposed += other.exposed * others;
  out.bounds.compute += other.bounds.compute * others;
  out.bounds.step += other.bounds.step * others;
  out.peak = std::max(out.peak, other.peak);
  out.bounds.peak = std::max(out.bounds.peak, other.bounds.peak);
  return out;
}

// A bound is the largest of several, each of which grows by the same with every layer, or by more. So the line is never above it.
Result<StepOutcome> PointEvaluator::Promise(const SearchPoint& point) {
  int64_t small = model_.small_layers;
  if (model_.layers <= small + 1) return Evaluate(point, model_.layers);
  HEDDLE_TRY(StepOutcome a, Evaluate(point, small));
  HEDDLE_TRY(StepOutcome b, Evaluate(point, small + 1));
  int64_t more = model_.layers - small - 1;
  auto line = [more](auto small, auto large) { return large + (large - small) * more; };
  return StepOutcome{.step = line(a.step, b.step),
                     .exposed = line(a.exposed, b.exposed),
                     .peak = line(a.peak, b.peak),
                     .bounds = {.compute = line(a.bounds.compute, b.bounds.compute),
                                .step = line(a.bounds.step, b.bounds.step),
                                .peak = line(a.bounds.peak, b.bounds.peak)}};
}

// With several micro-batches the optimizer, a small part, is left out, so that one graph serves all.
Result<Nanos> PointEvaluator::LeastCompute(const SearchPoint& point) {
  auto compute_with = [&](int64_t layers) -> Result<Nanos> {
    StepRequest request = RequestFor(point, layers);
    request.updates = point.arrangement.micro_batches == 1;
    HEDDLE_TRY(Evaluation evaluated, Finished(point, request, false));
    return evaluated.outcome.bounds.compute * point.arrangement.micro_batches;
  };
  int64_t small = model_.small_layers;
  if (model_.layers <= small + 1) return compute_with(model_.layers);
  HEDDLE_TRY(Nanos a, compute_with(small));
  HEDDLE_TRY(Nanos b, compute_with(small + 1));
  return b + (b - a) * (model_.layers - small - 1);
}

Result<TriedPoint> PointEvaluator::Try(const SearchPoint& point) {
  HEDDLE_TRY(StepOutcome outcome, Evaluate(point, model_.layers));
  HEDDLE_TRY(compile::Plan plan, PlanFor(point, model_.layers));
  plan.decisions = DecisionsFor(point);
  return TriedPoint{point, outcome, std::move(plan)};
}

Result<price::StepSummary> PointEvaluator::Summary(const SearchPoint& point) {
  HEDDLE_TRY(Evaluation whole, Finished(point, RequestFor(point, model_.layers), true));
  return price::Summarize(whole.module, whole.module.graphs[0]);
}

Status PointEvaluator::Place(const SearchPoint& point, const Allowance& allowance) {
  HEDDLE_TRY(const Module* module, Captured(RequestFor(point, model_.layers)));
  compile::Plan plan;
  plan.mesh = MeshOf(point.arrangement);
  plan.automatic = true;
  plan.decisions.reshard = point.reshard;
  PlanRequest request;
  request.automatic.allowance = allowance;
  request.tries_plans = true;
  compile::CompileOptions how;
  how.pipeline = PipelineOf(point, true);
  how.manager = evaluator_.Unchecked();
  HEDDLE_TRY(FoundPlacements found, FindPlacements(*module, plan, request, how));
  found_[point.arrangement] = std::move(found.plan);
  return Done{};
}

}  // namespace heddle::search
