// propagate: gives every value of a global graph a placement, from a plan and the factors of the ops.
//
//   %w: f32[1024,4096] param        with `param "*" store [dp,-] compute [-,-]` becomes
//
//   %w: f32[1024{dp},4096] param
//   %h = aten._to_copy(%w, dtype=bf16)           : bf16[1024{dp},4096]
//   %u = shard.redistribute(%h, why=unshard)     : bf16[1024,4096]
//   %y = aten.mm(%x, %u)                         : bf16[32{dp},4096]
//
// In graph order. What the plan fixes gets its redistribution here: parameters where they are read (after the cast that narrows
// them, once for all readers), what crosses the boundary of a layer, gradients and the loss. Everything else follows from
// placing.h; where an operand is not where its op needs it, insert-redistributions moves it.
#include <algorithm>
#include <map>
#include <set>

#include "heddle/base/text.h"
#include "heddle/ops/ops.h"
#include "heddle/pass/pass.h"
#include "heddle/passes/parallel/deviations.h"
#include "heddle/passes/parallel/grad_reduction.h"
#include "heddle/passes/parallel/group_norm.h"
#include "heddle/passes/parallel/inserter.h"
#include "heddle/passes/parallel/plan_inputs.h"
#include "heddle/passes/parallel/region.h"
#include "heddle/passes/parallel/said_nodes.h"
#include "heddle/passes/parallel/write_out.h"
#include "heddle/plan/patterns.h"
#include "heddle/plan/plan.h"
#include "heddle/shard/node_facts.h"
#include "heddle/shard/scope_facts.h"

namespace heddle {
namespace {

struct PropagateOptions {
  std::string plan;
};

class Propagator {
 public:
  Propagator(Module& module, Graph& graph, const Plan& plan, Regions regions, PassContext& context)
      : graph_(graph),
        mesh_(module.mesh),
        plan_(plan),
        regions_(std::move(regions)),
        scopes_(graph),
        context_(context),
        facts_(graph, module.mesh),
        rewriter_(graph),
        inserter_(graph, rewriter_) {}

  Result<Changed> Run() { return rewriter_.Finish(Walk()); }

  // Decides as `chosen` says, and answers with the nodes where that differs from what it would do.
  Result<std::vector<NodeId>> Compare(const std::vector<const OpSplit*>& chosen) {
    chosen_ = &chosen;
    HEDDLE_RETURN_IF_ERROR(Run());
    return std::move(deviations_);
  }

 private:
  using ParamPlan = PlacedInputs::ParamPlan;

  Status Walk() {
    HEDDLE_TRY(inputs_, PlaceInputs(graph_, plan_));
    HEDDLE_TRY(said_, FindSaidNodes(graph_, plan_));
    placement_.assign(graph_.value_count(), PlacementTable::kReplicated);
    param_.assign(graph_.value_count(), nullptr);
    for (const Input& input : graph_.inputs()) {
      SetPlacement(input.value, inputs_.placement[input.value.index()]);
      param_[input.value.index()] = inputs_.Param(input);
    }
    for (size_t i = 0; i < graph_.outputs().size(); ++i)
      outputs_of_.emplace(graph_.outputs()[i].value, i);
    SetGoals();
    // Nodes that are inserted on the way have their placements already.
    size_t count = graph_.node_count();
    for (uint32_t n = 0; n < count; ++n) HEDDLE_RETURN_IF_ERROR(Visit(NodeId(n)));
    if (chosen_ != nullptr) CompareConstants();
    for (const Input& input : graph_.inputs())
      HEDDLE_RETURN_IF_ERROR(FinishOutputs(input.value, NodeId()));
    RemarkDivided();
    context_.Count("redistributions", inserter_.redistributions());
    return Done{};
  }

  PlacementId At(ValueId v) const { return placement_[v.index()]; }
  bool IsBackward(ValueId v) const {
    NodeId producer = graph_[v].producer;
    return producer && graph_[producer].phase == Phase::kBackward;
  }

  Status Visit(NodeId node) {
    if (KeepsStorage(node)) return FinishOutputs(graph_[node].first_result, node);
    for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
      ValueId v = graph_.operands(node)[i];
      if (!v) continue;
      HEDDLE_TRY(ValueId wanted, Arrive(v, node));
      if (wanted != v) rewriter_.SetOperand(node, i, wanted);
    }
    if (graph_[node].op == op::heddle_squared_norm) {
      for (NodeId made : GroupNorm(graph_, rewriter_, node, [&](ValueId v) { return At(v); }))
        Noted(graph_[made].first_result, graph_[graph_[made].first_result].placement);
    }
    auto said = said_.find(node);
    if (said != said_.end()) return PlaceAs(node, said->second.split, said->second.line);
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
    return Finish(node, placing->results);
  }

  Result<const NodePlacing*> PlaceFreely(NodeId node) {
    std::vector<NodeFacts::Operand> operands;
    for (ValueId v : graph_.operands(node)) operands.push_back(OperandOf(v));
    return facts_.Place(node, operands, scopes_.local(graph_[node].scope), nullptr, GoalOf(node));
  }

  Status Finish(NodeId node, const std::vector<Placement>& results) {
    size_t r = 0;
    for (ValueId v : graph_.results(node)) SetPlacement(v, results[r++]);
    for (ValueId v : graph_.results(node)) HEDDLE_RETURN_IF_ERROR(FinishOutputs(v, node));
    return Done{};
  }

  // --- Nodes that somebody has decided

  // Operands move here and now: insert-redistributions would look for another way to the same results.
  Status PlaceAs(NodeId node, const OpSplit& split, uint32_t line) {
    if (IsConstant(graph_, node)) {
      settled_.insert(graph_[node].first_result);
      return Finish(node, split.results);
    }
    for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
      ValueId v = graph_.operands(node)[i];
      if (!v) continue;
      if (OperandOf(v).is_free) Settle(v, split.operands[i]);
      Why why =
          graph_[node].phase == Phase::kOptimizer ? Why::kNorm : scopes_.why(graph_[node].scope);
      ValueId moved =
          Redistribute(v, graph_.placements().Intern(split.operands[i]), {.why = why}, node);
      if (moved != v) rewriter_.SetOperand(node, i, moved);
    }
    if (!CanBeSplit(node, split))
      return Error(Diag::kPlan, "line {} of the plan: no loops of {} give these placements", line,
                   graph_.op(node).name());
    return Finish(node, split.results);
  }

  bool CanBeSplit(NodeId node, const OpSplit& split) {
    std::vector<NodeFacts::Operand> operands;
    for (ValueId v : graph_.operands(node))
      operands.push_back({v, v ? At(v) : PlacementTable::kReplicated});
    std::vector<PlacementId> wanted;
    for (const Placement& placement : split.results)
      wanted.push_back(graph_.placements().Intern(placement));
    Result<const NodePlacing*> placing =
        facts_.Place(node, operands, scopes_.local(graph_[node].scope), &wanted);
    return placing.ok() && SameOperands(node, **placing, split);
  }
  bool SameOperands(NodeId node, const NodePlacing& placing, const OpSplit& split) const {
    for (size_t i = 0; i < split.operands.size(); ++i) {
      if (graph_.operands(node)[i] && placing.operands[i] != split.operands[i]) return false;
    }
    return true;
  }

  // Whether the node would be split otherwise. A constant is split as its first reader wants it, so it waits for that.
  bool Deviates(NodeId node, const OpSplit& chosen) {
    if (IsConstant(graph_, node)) return false;
    for (size_t i = 0; i < chosen.operands.size(); ++i) {
      NodeFacts::Operand operand = OperandOf(graph_.operands(node)[i]);
      if (!operand.is_free) continue;
      NodeId constant = graph_[operand.value].producer;
      const OpSplit* made = (*chosen_)[constant.index()];
      if (made == nullptr || made->results[0] == chosen.operands[i]) continue;
      deviations_.push_back(constant);
      Settle(operand.value, made->results[0]);
    }
    Result<const NodePlacing*> placing = PlaceFreely(node);
    return !placing.ok() || (*placing)->results != chosen.results ||
           !SameOperands(node, **placing, chosen);
  }

  // Those that nobody has read, or that left the graph as they were.
  void CompareConstants() {
    for (uint32_t n = 0; n < chosen_->size(); ++n) {
      NodeId node(n);
      const OpSplit* made = (*chosen_)[n];
      if (made == nullptr || !IsConstant(graph_, node)) continue;
      ValueId v = graph_[node].first_result;
      if (At(v) != graph_.placements().Intern(made->results[0])) deviations_.push_back(node);
    }
  }

  NodeFacts::Operand OperandOf(ValueId v) const {
    if (!v) return {};
    NodeId producer = graph_[v].producer;
    bool constant = producer && !settled_.contains(v) && IsConstant(graph_, producer);
    return {v, At(v), constant, constant && IsZero(graph_, producer)};
  }
  // The first reader of a constant decides how it is made.
  void Settle(ValueId v, const Placement& placement) {
    SetPlacement(v, placement);
    settled_.insert(v);
  }

  void SetPlacement(ValueId v, const Placement& placement) {
    SetPlacement(v, graph_.placements().Intern(placement));
  }
  void SetPlacement(ValueId v, PlacementId id) {
    placement_[v.index()] = id;
    if (graph_[v].placement != id) rewriter_.SetType(v, graph_.type(v), id);
  }

  // A cast of a parameter that narrows it happens in its storage, so that fewer bytes are gathered.
  bool KeepsStorage(NodeId node) {
    if (graph_[node].phase == Phase::kOptimizer || graph_[node].op != op::_to_copy) return false;
    ValueId from = graph_.operands(node)[0];
    ValueId to = graph_[node].first_result;
    const ParamPlan* param = param_[from.index()];
    if (param == nullptr || ItemSize(graph_.types().dtype(graph_.type(to))) >=
                                ItemSize(graph_.types().dtype(graph_.type(from))))
      return false;
    param_[to.index()] = param;
    SetPlacement(to, At(from));
    // Several readers cast alike: all of them use the first one, and its gather.
    same_cast_[to] = casts_.try_emplace({param, graph_.type(to)}, to).first->second;
    return true;
  }

  // The value as it arrives at a node: out of one layer, into another, in the wide or the narrow type.
  Result<ValueId> Arrive(ValueId v, NodeId node) {
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
    if (!plan_.wide_tensor_grads && IsGradCast(node)) {
      const ParamPlan* param = GradParam(graph_[node].first_result);
      v = Redistribute(v, WithoutTensorPartials(v, *param),
                       {.why = Why::kGrad, .unit = param->unit}, node);
    }
    return v;
  }

  // Where gradients will end, for what they are made of element by element.
  void SetGoals() {
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
  PlacementId GoalOf(NodeId node) const {
    return graph_[node].result_count > 0 ? goal_[graph_[node].first_result.index()]
                                         : PlacementTable::kReplicated;
  }

  // --- Boundaries of layers

  Result<ValueId> Cross(ValueId v, NodeId node) {
    NodeId producer = graph_[v].producer;
    if (!producer && !inputs_.is_batch[v.index()]) return v;
    // What is on its way lies nowhere yet; its wait is what crosses.
    if (graph_.types().is_async(graph_.type(v))) return v;
    ScopeId from = producer ? graph_[producer].scope : ScopeId();
    ScopeId to = graph_[node].scope;
    if (from == to) return v;
    size_t rank = graph_.types().rank(graph_.type(v));
    std::vector<uint32_t> left = Without(regions_.of(from), regions_.of(to));
    std::vector<uint32_t> entered = Without(regions_.of(to), regions_.of(from));
    if (IsBackward(v)) return CrossBack(v, node, rank, left, entered);
    // Out of the outermost layer that is left, into the innermost that is entered.
    for (uint32_t i : left) {
      Layer& layer = regions_[i];
      if (!layer.rule->out || layer.rule->out->rank != rank) continue;
      layer.inside_out[rank] = At(v);
      HEDDLE_TRY(PlacementId out, AtBoundary(v, *layer.rule, *layer.rule->out));
      v = Redistribute(v, out, {.why = layer.rule->why}, node);
      break;
    }
    for (uint32_t i : entered) {
      Layer& layer = regions_[i];
      if (!layer.rule->in || layer.rule->in->rank != rank) continue;
      layer.outside_in.try_emplace(rank, At(v));
      HEDDLE_TRY(PlacementId in, AtBoundary(v, *layer.rule, *layer.rule->in));
      v = Redistribute(v, in, {.why = layer.rule->why}, node);
    }
    return v;
  }

  // A gradient leaves a layer where its input came in, and enters one where its output went out: the mirrored
  // redistribution. What was pending in forward is whole in backward.
  ValueId CrossBack(ValueId v, NodeId node, size_t rank, const std::vector<uint32_t>& left,
                    const std::vector<uint32_t>& entered) {
    for (uint32_t i : left) {
      auto found = regions_[i].outside_in.find(rank);
      if (found == regions_[i].outside_in.end()) continue;
      v = Redistribute(v, Summed(found->second), {.why = regions_[i].rule->why}, node);
      break;
    }
    for (uint32_t i : entered) {
      auto found = regions_[i].inside_out.find(rank);
      if (found != regions_[i].inside_out.end())
        v = Redistribute(v, Summed(found->second), {.why = regions_[i].rule->why}, node);
    }
    return v;
  }

  Result<PlacementId> AtBoundary(ValueId v, const PlanLayer& rule,
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
  PlacementId Summed(PlacementId id) {
    Placement placement = graph_.placements()[id];
    placement.partials.clear();
    return graph_.placements().Intern(std::move(placement));
  }

  // --- Gradients and other outputs

  const ParamPlan* GradParam(ValueId v) const {
    auto [begin, end] = outputs_of_.equal_range(v);
    for (auto it = begin; it != end; ++it) {
      const Output& output = graph_.outputs()[it->second];
      if (output.role == OutputRole::kGrad) return inputs_.ParamNumber(output.index);
    }
    return nullptr;
  }

  // A cast to a wider type that ends in a gradient.
  bool IsGradCast(NodeId node) const {
    if (graph_[node].op != op::_to_copy) return false;
    ValueId from = graph_.operands(node)[0];
    ValueId to = graph_[node].first_result;
    return GradParam(to) != nullptr && ItemSize(graph_.types().dtype(graph_.type(to))) >
                                           ItemSize(graph_.types().dtype(graph_.type(from)));
  }

  PlacementId WithoutTensorPartials(ValueId v, const ParamPlan& param) {
    return graph_.placements().Intern(heddle::WithoutTensorPartials(
        graph_.placements()[At(v)], graph_.placements()[param.store], inputs_.batch_axes));
  }

  // From where backward leaves it to where the parameter is stored.
  Result<ValueId> FinishGradient(ValueId v, const ParamPlan& param) {
    // Only sums of data parallelism are divided.
    bool divides = plan_.average || plan_.grad_divisor != 1.0;
    DType dtype = graph_.types().dtype(graph_.type(v));
    if (divides && IsInteger(dtype))
      return Error(Diag::kPlan,
                   "gradient `%{}` is {}; the plan divides gradients, and integers "
                   "would lose what is behind the point",
                   graph_.name(v), Name(dtype));
    if (!plan_.wide_tensor_grads || divides)
      v = RedistributeBehind(v, WithoutTensorPartials(v, param),
                             {.why = Why::kGrad, .unit = param.unit});
    GradReduction reduction =
        ReductionOf(plan_, dtype, graph_.placements()[At(v)], graph_.placements()[param.store]);
    v = DivideBehind(v, reduction.divide_before);
    v = RedistributeBehind(v, param.store,
                           {Why::kGrad, param.unit, reduction.average, reduction.scale});
    return DivideBehind(v, reduction.divide_behind);
  }

  ValueId DivideBehind(ValueId v, double divisor) {
    if (divisor == 1.0) return v;
    Attrs attrs;
    attrs.Set("other", divisor);
    return Noted(inserter_.Add(inserter_.Behind(v), op::div_Scalar, "grad", {v}, attrs,
                               graph_.type(v), At(v)),
                 At(v));
  }

  // Redistributes what leaves the graph, right behind the node that makes it.
  Status FinishOutputs(ValueId v, NodeId node) {
    auto [begin, end] = outputs_of_.equal_range(v);
    for (auto it = begin; it != end; ++it) {
      const Output& output = graph_.outputs()[it->second];
      ValueId out = v;
      if (output.role == OutputRole::kGrad) {
        HEDDLE_TRY(out, FinishGradient(out, *inputs_.ParamNumber(output.index)));
        if (out != v) finished_.emplace(v, out);
      } else if (output.role == OutputRole::kLoss || output.role == OutputRole::kMetric) {
        bool norm = node && graph_[node].phase == Phase::kOptimizer;
        out = RedistributeBehind(out, PlacementTable::kReplicated,
                                 {.why = norm ? Why::kNorm : Why::kLoss});
      } else if (output.role == OutputRole::kUpdate) {
        out = RedistributeBehind(out, At(output.target), {});
      } else if (node) {
        HEDDLE_TRY(out, LeaveLayers(out, node));
      }
      if (out != v) rewriter_.SetOutput(it->second, out);
    }
    return Done{};
  }

  // What leaves the graph leaves the layers that it comes from.
  Result<ValueId> LeaveLayers(ValueId v, NodeId node) {
    size_t rank = graph_.types().rank(graph_.type(v));
    for (uint32_t i : regions_.of(graph_[node].scope)) {
      const PlanLayer& rule = *regions_[i].rule;
      if (!rule.out || rule.out->rank != rank || graph_[node].phase != Phase::kForward) continue;
      HEDDLE_TRY(PlacementId out, AtBoundary(v, rule, *rule.out));
      return RedistributeBehind(v, out, {.why = rule.why});
    }
    return v;
  }

  // --- Redistributions

  using Purpose = Inserter::Purpose;

  ValueId Redistribute(ValueId v, PlacementId target, const Purpose& purpose, NodeId before) {
    return At(v) == target
               ? v
               : Noted(inserter_.Redistribute(Inserter::Before(before), v, target, purpose),
                       target);
  }
  ValueId RedistributeBehind(ValueId v, PlacementId target, const Purpose& purpose) {
    return At(v) == target
               ? v
               : Noted(inserter_.Redistribute(inserter_.Behind(v), v, target, purpose), target);
  }
  ValueId Noted(ValueId result, PlacementId placement) {
    placement_.resize(graph_.value_count(), PlacementTable::kReplicated);
    param_.resize(graph_.value_count(), nullptr);
    placement_[result.index()] = placement;
    return result;
  }

  // The gradients of a whole graph are sums over its whole batch. A plan that divides them departs from the graph.
  void RemarkDivided() {
    int64_t ranks = mesh_.Size(inputs_.batch_axes);
    double divisor = plan_.average ? static_cast<double>(ranks) : plan_.grad_divisor;
    auto is_grad = [](const Output& output) { return output.role == OutputRole::kGrad; };
    if (divisor == 1.0 || std::ranges::none_of(graph_.outputs(), is_grad)) return;
    context_.AddRemark(
        graph_, ValueId(), RemarkKind::kGradientsDivided,
        "gradients are {} times smaller than those of the whole graph, whose loss is "
        "that of all ranks together; `grads sum` keeps them",
        divisor);
  }

  void RemarkDropped(NodeId node, const Axes& dropped) {
    ValueId v = graph_[node].first_result;
    if (graph_.op(node).effect() == Effect::kView) {
      context_.AddRemark(graph_, v, RemarkKind::kViewNotLocal,
                         "{} cannot work on parts over [{}]; its operand is gathered first",
                         graph_.op(node).name(), Format(mesh_, dropped));
      return;
    }
    context_.AddRemark(graph_, v, RemarkKind::kReplicated,
                       "{} has no loop to split over [{}]; it works on whole tensors",
                       graph_[node].op == kOpaqueOp ? graph_.attrs(node).opaque_op
                                                    : std::string(graph_.op(node).name()),
                       Format(mesh_, dropped));
  }

  Graph& graph_;
  const Mesh& mesh_;
  const Plan& plan_;
  std::map<NodeId, SaidNode> said_;
  // For Compare.
  const std::vector<const OpSplit*>* chosen_ = nullptr;
  std::vector<NodeId> deviations_;
  Regions regions_;
  ScopeFacts scopes_;
  PassContext& context_;
  NodeFacts facts_;
  Rewriter rewriter_;
  Inserter inserter_;
  PlacedInputs inputs_;
  // By value: its placement, and the parameter whose storage it still is.
  std::vector<PlacementId> placement_;
  std::vector<const ParamPlan*> param_;
  std::vector<PlacementId> goal_;
  std::map<std::pair<const ParamPlan*, TypeId>, ValueId> casts_;
  std::map<ValueId, ValueId> same_cast_;
  std::set<ValueId> settled_;
  std::multimap<ValueId, size_t> outputs_of_;
  // Gradients by what they are before they are reduced.
  std::map<ValueId, ValueId> finished_;
};

// What a plan has placed once it would divide and move once more.
Status CheckUnplaced(const Graph& graph) {
  for (NodeId node : graph.nodes()) {
    if (graph[node].op != op::shard_redistribute) continue;
    return Error(
        Diag::kPlan,
        "@{} is placed already, `%{}` is a redistribution; a plan is for the captured graph",
        graph.name(), graph.name(graph[node].first_result));
  }
  for (ValueId v : graph.values()) {
    if (graph[v].placement == PlacementTable::kReplicated) continue;
    return Error(Diag::kPlan,
                 "@{} is placed already, `%{}` has a placement; a plan is for the captured graph",
                 graph.name(), graph.name(v));
  }
  return Done{};
}

Result<Changed> Propagate(Module& module, const PropagateOptions& options, PassContext& context) {
  HEDDLE_TRY(Plan plan, ParsePlan(options.plan, "plan"));
  if (plan.automatic)
    return Error(Diag::kPlan,
                 "the plan says `auto`; `heddle parallelize` fills in what it leaves open");
  if (!module.mesh.empty() && module.mesh != plan.mesh) {
    return Error(Diag::kPlan, "the graph is on mesh [{}], the plan on [{}]", Format(module.mesh),
                 Format(plan.mesh));
  }
  for (const Graph& graph : module.graphs) HEDDLE_RETURN_IF_ERROR(CheckUnplaced(graph));
  HEDDLE_RETURN_IF_ERROR(CheckPatterns(module, plan));
  bool new_mesh = module.mesh != plan.mesh;
  module.mesh = plan.mesh;
  Changed changed = new_mesh ? Changed::kYes : Changed::kNo;
  for (Graph& graph : module.graphs) {
    HEDDLE_TRY(Regions regions, Regions::Find(graph, plan));
    std::vector<Region> facts = regions.Facts(graph);
    if (facts != graph.regions()) changed = Changed::kYes;
    graph.SetRegions(std::move(facts));
    changed = changed | WriteOut(graph, regions, plan.mesh);
    HEDDLE_TRY(Changed one, Propagator(module, graph, plan, std::move(regions), context).Run());
    changed = changed | one;
  }
  return changed;
}

constexpr OptionDef kOptions[] = {
    Option<&PropagateOptions::plan>("plan", "the plan, as text in quotes")};
constexpr std::string_view kStats[] = {"redistributions"};

}  // namespace

Result<std::vector<NodeId>> FindDeviations(const Module& module, const Plan& plan,
                                           const std::vector<const OpSplit*>& chosen) {
  Module copy = module;
  copy.mesh = plan.mesh;
  Graph& graph = copy.graphs[0];
  HEDDLE_TRY(Regions regions, Regions::Find(graph, plan));
  AnalysisCache analyses;
  PassContext context(copy.mesh, analyses);
  return Propagator(copy, graph, plan, std::move(regions), context).Compare(chosen);
}

HEDDLE_DEFINE_PASS(propagate){
    .name = "propagate",
    .summary = "gives every value a placement, from a plan and the factors of the ops",
    .run = Run<Propagate>,
    .make_options = Make<PropagateOptions>,
    .options = kOptions,
    .any_view = false,
    .needs = View::kGlobal,
    .numerics = Numerics::kRounding,
    .sets_units = true,
    .stats = kStats,
};

}  // namespace heddle
