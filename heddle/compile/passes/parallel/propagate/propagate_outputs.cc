// Outputs of the graph: gradients in the placements of their parameters; losses and metrics not
// split.
#include <algorithm>

#include "heddle/compile/passes/parallel/propagate/grad_reduction.h"
#include "heddle/compile/passes/parallel/propagate/propagator.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {

const PlacedInputs::ParamPlan* Propagator::GradParam(ValueId v) const {
  auto [begin, end] = outputs_of_.equal_range(v);
  for (auto it = begin; it != end; ++it) {
    const Output& output = graph_.outputs()[it->second];
    if (output.role == OutputRole::kGrad) return inputs_.ParamNumber(output.index);
  }
  return nullptr;
}

bool Propagator::IsGradCast(NodeId node) const {
  if (graph_[node].op != op::_to_copy) return false;
  ValueId from = graph_.operands(node)[0];
  ValueId to = graph_[node].first_result;
  return GradParam(to) != nullptr && ItemSize(graph_.types().dtype(graph_.type(to))) >
                                         ItemSize(graph_.types().dtype(graph_.type(from)));
}

PlacementId Propagator::WithoutTensorPartials(ValueId v, const ParamPlan& param) {
  return graph_.placements().Intern(heddle::compile::WithoutTensorPartials(
      graph_.placements()[At(v)], graph_.placements()[param.store], inputs_.batch_axes));
}

Result<ValueId> Propagator::FinishGradient(ValueId v, const ParamPlan& param) {
  // Only sums of data parallelism are divided.
  bool divides = plan_.average || plan_.grad_divisor != 1.0;
  DType dtype = graph_.types().dtype(graph_.type(v));
  if (divides && IsInteger(dtype))
    return Error(Diag::kPlan,
                 "gradient `%{}` is {}; the plan divides gradients, which would truncate integers; "
                 "write `grads sum`",
                 graph_.name(v), Name(dtype));
  if (!plan_.wide_tensor_grads || divides)
    v = RedistributeBehind(v, WithoutTensorPartials(v, param),
                           {.why = Why::kTensor, .unit = param.unit});
  GradReduction reduction =
      ReductionOf(plan_, dtype, graph_.placements()[At(v)], graph_.placements()[param.store]);
  v = DivideBehind(v, reduction.divide_before);
  v = RedistributeBehind(v, param.store,
                         {Why::kGrad, param.unit, reduction.average, reduction.scale});
  return DivideBehind(v, reduction.divide_behind);
}

ValueId Propagator::DivideBehind(ValueId v, double divisor) {
  if (divisor == 1.0) return v;
  Attrs attrs;
  attrs.Set("other", divisor);
  return Noted(
      inserter_.Add(inserter_.After(v), op::div_Scalar, "grad", {v}, attrs, graph_.type(v), At(v)),
      At(v));
}

Status Propagator::FinishOutputs(ValueId v, NodeId node) {
  if (!leaves_[v.index()]) return Done{};
  auto [begin, end] = outputs_of_.equal_range(v);
  for (auto it = begin; it != end; ++it) {
    const Output& output = graph_.outputs()[it->second];
    ValueId out = v;
    if (output.role == OutputRole::kGrad && !reduced_.contains(v)) {
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

Result<ValueId> Propagator::LeaveLayers(ValueId v, NodeId node) {
  size_t rank = graph_.types().rank(graph_.type(v));
  for (uint32_t i : boundaries_.of(graph_[node].scope)) {
    const PlanModule& rule = *boundaries_[i].rule;
    if (!rule.out || rule.out->rank != rank || graph_[node].phase != Phase::kForward) continue;
    HEDDLE_TRY(PlacementId out, AtBoundary(v, rule, *rule.out));
    return RedistributeBehind(v, out, {.why = rule.why});
  }
  return v;
}

ValueId Propagator::Redistribute(ValueId v, PlacementId target, const Purpose& purpose,
                                 NodeId before) {
  return At(v) == target
             ? v
             : Noted(inserter_.Redistribute(Inserter::Before(before), v, target, purpose), target);
}

ValueId Propagator::RedistributeBehind(ValueId v, PlacementId target, const Purpose& purpose) {
  return At(v) == target
             ? v
             : Noted(inserter_.Redistribute(inserter_.After(v), v, target, purpose), target);
}

ValueId Propagator::Noted(ValueId result, PlacementId placement) {
  placement_.resize(graph_.value_count(), PlacementTable::kReplicated);
  param_.resize(graph_.value_count(), nullptr);
  placement_[result.index()] = placement;
  return result;
}

void Propagator::RemarkDivided() {
  int64_t ranks = mesh_.Size(inputs_.batch_axes);
  double divisor = plan_.average ? static_cast<double>(ranks) : plan_.grad_divisor;
  auto is_grad = [](const Output& output) { return output.role == OutputRole::kGrad; };
  if (divisor == 1.0 || std::ranges::none_of(graph_.outputs(), is_grad)) return;
  context_.AddRemark(graph_, ValueId(), RemarkKind::kGradientsDivided,
                     "gradients are {} times smaller than those of the graph, whose loss covers "
                     "the whole batch; write `grads sum` to keep them",
                     divisor);
}

void Propagator::RemarkDropped(NodeId node, const Axes& dropped) {
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

}  // namespace heddle::compile
