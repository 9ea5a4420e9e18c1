// propagate: assigns a placement to every value of a global graph, from a plan and the factors of
// ops.
//
//   %w: f32[1024,4096] param        with `param "*" store [dp,-] compute [-,-]` becomes
//
//   %w: f32[1024{dp},4096] param
//   %h = aten._to_copy(%w, dtype=bf16)           : bf16[1024{dp},4096]
//   %u = shard.redistribute(%h, why=unshard)     : bf16[1024,4096]
//   %y = aten.mm(%x, %u)                         : bf16[32{dp},4096]
//
// Walks the graph in order. Inserts redistributions for placements that the plan fixes: of
// parameters at their first reader (after a narrowing cast, once for all readers), of values at
// module boundaries, of gradients, and of the loss. Other placements follow from placing.h;
// insert-redistributions later moves operands to where ops need them.
#include <algorithm>

#include "heddle/compile/passes/parallel/propagate/decompose.h"
#include "heddle/compile/passes/parallel/propagate/group_norm.h"
#include "heddle/compile/passes/parallel/propagate/plannable.h"
#include "heddle/compile/passes/parallel/propagate/propagate.h"
#include "heddle/compile/passes/parallel/propagate/propagator.h"
#include "heddle/compile/passes/parallel/propagate/spread_experts.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {

Status Propagator::Walk() {
  HEDDLE_TRY(inputs_, PlaceInputs(graph_, plan_));
  HEDDLE_TRY(pinned_, FindPinnedNodes(graph_, plan_));
  placement_.assign(graph_.value_count(), PlacementTable::kReplicated);
  param_.assign(graph_.value_count(), nullptr);
  for (const Input& input : graph_.inputs()) {
    SetPlacement(input.value, inputs_.placement[input.value.index()]);
    param_[input.value.index()] = inputs_.Param(input);
  }
  leaves_.assign(graph_.value_count(), false);
  for (size_t i = 0; i < graph_.outputs().size(); ++i) {
    outputs_of_.emplace(graph_.outputs()[i].value, i);
    leaves_[graph_.outputs()[i].value.index()] = true;
  }
  SetGoals();
  // Nodes inserted during the walk already have placements.
  size_t count = graph_.node_count();
  for (uint32_t n = 0; n < count; ++n) HEDDLE_RETURN_IF_ERROR(Visit(NodeId(n)));
  RecomputeFromLatents();
  if (chosen_ != nullptr) CompareConstants();
  for (const Input& input : graph_.inputs())
    HEDDLE_RETURN_IF_ERROR(FinishOutputs(input.value, NodeId()));
  RemarkDivided();
  context_.Count("redistributions", inserter_.redistributions());
  return Done{};
}

bool Propagator::IsBackward(ValueId v) const {
  NodeId producer = graph_[v].producer;
  return producer && graph_[producer].phase == Phase::kBackward;
}

Status Propagator::Visit(NodeId node) {
  if (KeepsStorage(node)) return FinishOutputs(graph_[node].first_result, node);
  for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
    ValueId v = graph_.operands(node)[i];
    if (!v) continue;
    HEDDLE_TRY(ValueId wanted, Arrive(v, node));
    if (wanted != v) rewriter_.SetOperand(node, i, wanted);
  }
  const PlanModule* context = ContextOf(node);
  std::vector<PlacementId> before;
  if (context != nullptr) {
    HEDDLE_TRY(before, EnterAttention(node, *context));
  }
  if (graph_[node].op == op::heddle_squared_norm) {
    for (NodeId made : GroupNorm(graph_, rewriter_, node, [&](ValueId v) { return At(v); }))
      Noted(graph_[made].first_result, graph_[graph_[made].first_result].placement);
  }
  auto pinned = pinned_.find(node);
  if (pinned != pinned_.end()) return PlaceAs(node, pinned->second.split, pinned->second.line);
  bool compare = chosen_ != nullptr && (*chosen_)[node.index()] != nullptr;
  if (compare && Deviates(node, *(*chosen_)[node.index()])) {
    deviations_.push_back(node);
    return PlaceAs(node, *(*chosen_)[node.index()], 0);
  }
  HEDDLE_TRY(const NodePlacing* placing, PlaceFreely(node));
  for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
    ValueId v = graph_.operands(node)[i];
    if (OperandOf(v).is_free) Settle(v, placing->operands[i]);
  }
  if (!placing->dropped.empty()) RemarkDropped(node, placing->dropped);
  HEDDLE_RETURN_IF_ERROR(Finish(node, placing->results));
  if (context != nullptr) LeaveAttention(node, before, *context);
  return Done{};
}

Result<const NodePlacing*> Propagator::PlaceFreely(NodeId node) {
  std::vector<NodeFacts::Operand> operands;
  for (ValueId v : graph_.operands(node)) operands.push_back(OperandOf(v));
  return facts_.Place(node, operands, scopes_.local(graph_[node]), nullptr, GoalOf(node));
}

Status Propagator::Finish(NodeId node, const std::vector<Placement>& results) {
  size_t r = 0;
  for (ValueId v : graph_.results(node)) SetPlacement(v, results[r++]);
  for (ValueId v : graph_.results(node)) HEDDLE_RETURN_IF_ERROR(FinishOutputs(v, node));
  return Done{};
}

NodeFacts::Operand Propagator::OperandOf(ValueId v) const {
  if (!v) return {};
  NodeId producer = graph_[v].producer;
  bool constant = producer && !settled_.contains(v) && IsConstant(graph_, producer);
  return {v, At(v), constant, constant && IsZero(graph_, producer)};
}

void Propagator::Settle(ValueId v, const Placement& placement) {
  SetPlacement(v, placement);
  settled_.insert(v);
}

void Propagator::SetPlacement(ValueId v, const Placement& placement) {
  SetPlacement(v, graph_.placements().Intern(placement));
}

void Propagator::SetPlacement(ValueId v, PlacementId id) {
  placement_[v.index()] = id;
  if (graph_[v].placement != id) rewriter_.SetType(v, graph_.type(v), id);
}

bool Propagator::KeepsStorage(NodeId node) {
  if (graph_[node].phase == Phase::kOptimizer || graph_[node].op != op::_to_copy) return false;
  ValueId from = graph_.operands(node)[0];
  ValueId to = graph_[node].first_result;
  const ParamPlan* param = param_[from.index()];
  if (param == nullptr || ItemSize(graph_.types().dtype(graph_.type(to))) >=
                              ItemSize(graph_.types().dtype(graph_.type(from))))
    return false;
  param_[to.index()] = param;
  SetPlacement(to, At(from));
  // Several readers have equal casts: all use the first cast and its gather.
  same_cast_[to] = casts_.try_emplace({param, graph_.type(to)}, to).first->second;
  return true;
}

Result<ValueId> Propagator::Arrive(ValueId v, NodeId node) {
  // Attention's own backward reads its output as computed.
  auto returned = returned_.find(v);
  if (returned != returned_.end() && ContextOf(node) == nullptr) v = returned->second;
  if (graph_[node].phase == Phase::kOptimizer) {
    auto done = finished_.find(v);
    return done == finished_.end() ? v : done->second;
  }
  if (const ParamPlan* param = param_[v.index()]) {
    auto first = same_cast_.find(v);
    return Redistribute(first == same_cast_.end() ? v : first->second, param->compute,
                        {.why = Why::kUnshard, .unit = param->unit}, node);
  }
  HEDDLE_TRY(v, Cross(v, node));
  if (plan_.narrow_grads && IsGradCast(node)) {
    reduced_.insert(graph_[node].first_result);
    return FinishGradient(v, *GradParam(graph_[node].first_result));
  }
  if (!plan_.wide_tensor_grads && IsGradCast(node)) {
    const ParamPlan* param = GradParam(graph_[node].first_result);
    v = Redistribute(v, WithoutTensorPartials(v, *param),
                     {.why = Why::kTensor, .unit = param->unit}, node);
  }
  return v;
}

void Propagator::SetGoals() {
  goal_.assign(graph_.value_count(), PlacementTable::kReplicated);
  for (const Output& output : graph_.outputs()) {
    if (output.role == OutputRole::kGrad)
      goal_[output.value.index()] = inputs_.ParamNumber(output.index)->compute;
  }
  for (size_t n = graph_.node_count(); n-- > 0;) {
    NodeId node{static_cast<uint32_t>(n)};
    if (graph_[node].op != op::_to_copy && graph_[node].op != op::add_Tensor) continue;
    PlacementId goal = GoalOf(node);
    if (goal == PlacementTable::kReplicated) continue;
    for (ValueId v : graph_.operands(node)) goal_[v.index()] = goal;
  }
}

PlacementId Propagator::GoalOf(NodeId node) const {
  return graph_[node].result_count > 0 ? goal_[graph_[node].first_result.index()]
                                       : PlacementTable::kReplicated;
}

Result<ValueId> Propagator::Cross(ValueId v, NodeId node) {
  if (boundaries_.empty()) return v;
  NodeId producer = graph_[v].producer;
  if (!producer && !inputs_.is_batch[v.index()]) return v;
  // A value in flight has no placement; its wait crosses the boundary.
  if (graph_.types().is_async(graph_.type(v))) return v;
  ScopeId from = producer ? graph_[producer].scope : ScopeId();
  ScopeId to = graph_[node].scope;
  if (from == to) return v;
  size_t rank = graph_.types().rank(graph_.type(v));
  std::vector<uint32_t> left = Without(boundaries_.of(from), boundaries_.of(to));
  std::vector<uint32_t> entered = Without(boundaries_.of(to), boundaries_.of(from));
  if (IsBackward(v)) return CrossBack(v, node, rank, left, entered);
  // From the outermost module that it leaves, into the innermost one that it enters.
  for (uint32_t i : left) {
    ModuleBoundary& boundary = boundaries_[i];
    if (!boundary.rule->out || boundary.rule->out->rank != rank) continue;
    boundary.inside_out[rank] = At(v);
    HEDDLE_TRY(PlacementId out, AtBoundary(v, *boundary.rule, *boundary.rule->out));
    v = Redistribute(v, out, {.why = boundary.rule->why}, node);
    break;
  }
  for (uint32_t i : entered) {
    ModuleBoundary& boundary = boundaries_[i];
    if (!boundary.rule->in || boundary.rule->in->rank != rank) continue;
    boundary.outside_in.try_emplace(rank, At(v));
    HEDDLE_TRY(PlacementId in, AtBoundary(v, *boundary.rule, *boundary.rule->in));
    v = Redistribute(v, in, {.why = boundary.rule->why}, node);
    if (boundary.rule->why == Why::kContext) latents_.insert(v);
  }
  return v;
}

ValueId Propagator::CrossBack(ValueId v, NodeId node, size_t rank,
                              const std::vector<uint32_t>& left,
                              const std::vector<uint32_t>& entered) {
  for (uint32_t i : left) {
    auto found = boundaries_[i].outside_in.find(rank);
    if (found == boundaries_[i].outside_in.end()) continue;
    v = boundaries_[i].rule->why == Why::kContext
            ? SumLatents(v, found->second, node)
            : Redistribute(v, Summed(found->second), {.why = boundaries_[i].rule->why}, node);
    break;
  }
  for (uint32_t i : entered) {
    auto found = boundaries_[i].inside_out.find(rank);
    if (found != boundaries_[i].inside_out.end())
      v = Redistribute(v, Summed(found->second), {.why = boundaries_[i].rule->why}, node);
  }
  return v;
}

Result<PlacementId> Propagator::AtBoundary(ValueId v, const PlanModule& rule,
                                           const BoundaryPlacement& boundary) {
  std::span<const Dim> dims = graph_.types().dims(graph_.type(v));
  for (size_t d = 0; d < boundary.placement.splits.size(); ++d) {
    if (IsSymbol(dims[d]) && !boundary.placement.splits[d].empty())
      return Error(Diag::kSymbolicSize,
                   "line {} of the plan: dimension {} of `%{}` has no fixed size and cannot be "
                   "split",
                   rule.line, d, graph_.name(v));
  }
  return graph_.placements().Intern(OnMesh(boundary.placement, mesh_));
}

PlacementId Propagator::Summed(PlacementId id) {
  Placement placement = graph_.placements()[id];
  placement.partials.clear();
  return graph_.placements().Intern(std::move(placement));
}

// Reads the plan from an option of the pass, and prints it.
static Status ParseOption(std::string_view text, std::optional<Plan>& out) {
  std::string unquoted;
  HEDDLE_RETURN_IF_ERROR(ParseOption(text, unquoted));
  HEDDLE_TRY(out, ParsePlan(unquoted, "plan"));
  return Done{};
}
static std::string FormatOption(const std::optional<Plan>& plan) {
  return plan ? FormatOption(FormatPlan(*plan)) : "";
}

namespace {

struct PropagateOptions {
  std::optional<Plan> plan = {};
};

Result<Changed> Propagate(Module& module, const PropagateOptions& options, PassContext& context) {
  if (!options.plan) return Error(Diag::kPassOption, "propagate needs a plan");
  const Plan& plan = *options.plan;
  if (plan.automatic)
    return Error(Diag::kPlan, "the plan says `auto`; use `heddle parallelize`, which completes it");
  HEDDLE_RETURN_IF_ERROR(CheckPlannable(module, plan));
  bool new_mesh = module.mesh != plan.mesh;
  module.mesh = plan.mesh;
  Changed changed = new_mesh ? Changed::kYes : Changed::kNo;
  for (Graph& graph : module.graphs) {
    HEDDLE_TRY(ModuleBoundaries boundaries, ModuleBoundaries::Find(graph, plan));
    std::vector<Region> facts = boundaries.Facts(graph);
    if (facts != graph.regions()) changed = Changed::kYes;
    graph.SetRegions(std::move(facts));
    changed = changed | DecomposeLogSoftmax(graph, boundaries, plan.mesh);
    HEDDLE_TRY(Changed spread, SpreadExperts(graph, boundaries, plan.mesh));
    changed = changed | spread;
    HEDDLE_TRY(Changed one, Propagator(module, graph, plan, std::move(boundaries), context).Run());
    changed = changed | one;
  }
  return changed;
}

constexpr OptionDef kPropagateOptions[] = {
    Option<&PropagateOptions::plan>("plan", "the plan, as text in quotes")};
constexpr std::string_view kPropagateStats[] = {"redistributions"};

}  // namespace

HEDDLE_DEFINE_PASS(propagate){
    .name = "propagate",
    .summary = "Assigns a placement to every value, from a plan and the factors of ops",
    .run = Run<Propagate>,
    .make_options = Make<PropagateOptions>,
    .options = kPropagateOptions,
    .any_view = false,
    .needs = View::kGlobal,
    .numerics = Numerics::kRounding,
    .sets_units = true,
    .stats = kPropagateStats,
};

void SetPlan(const Plan& plan, PipelineItem& item) {
  HEDDLE_CHECK(item.pass == &kPassDef_propagate, "the pass is propagate");
  static_cast<PropagateOptions*>(item.options.get())->plan = plan;
}

}  // namespace heddle::compile
