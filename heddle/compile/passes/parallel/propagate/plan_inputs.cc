#include "heddle/compile/passes/parallel/propagate/plan_inputs.h"

#include "heddle/compile/plan/patterns.h"
#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

class InputPlacer {
 public:
  InputPlacer(Graph& graph, const Plan& plan) : graph_(graph), plan_(plan) {}

  Result<PlacedInputs> Run() {
    out_.placement.assign(graph_.value_count(), PlacementTable::kReplicated);
    out_.is_batch.assign(graph_.value_count(), false);
    for (Input& input : graph_.mutable_inputs()) {
      if (input.role == InputRole::kParam) HEDDLE_RETURN_IF_ERROR(PlaceParam(input));
      if (input.role != InputRole::kParam && input.role != InputRole::kOpt)
        HEDDLE_RETURN_IF_ERROR(PlaceOther(input));
    }
    for (const Input& input : graph_.inputs()) {
      if (input.role == InputRole::kOpt) PlaceState(input);
    }
    HEDDLE_RETURN_IF_ERROR(CheckGradients());
    return std::move(out_);
  }

 private:
  size_t Rank(const Input& input) const { return graph_.types().rank(graph_.type(input.value)); }

  Status CheckFits(const Input& input, const Placement& placement, size_t rank,
                   uint32_t line) const {
    std::span<const Dim> dims = graph_.types().dims(graph_.type(input.value));
    for (size_t d = 0; d < std::min(dims.size(), placement.splits.size()); ++d) {
      if (IsSymbol(dims[d]) && !placement.splits[d].empty())
        return Error(Diag::kSymbolicSize,
                     "line {} of the plan: dimension {} of `{}` has no fixed size", line, d,
                     input.label);
    }
    if (rank <= dims.size()) return Done{};
    return Error(Diag::kPlan, "line {} of the plan: `{}` has {}, the placement {}", line,
                 input.label, Counted(Rank(input), "dimension"), rank);
  }

  Status PlaceParam(Input& input) {
    const PlanParam* found = nullptr;
    for (const PlanParam& rule : plan_.params) {
      if (!MatchesPattern(rule.pattern, input.label)) continue;
      bool differs =
          found != nullptr && (Interned(found->store, input) != Interned(rule.store, input) ||
                               Interned(found->compute, input) != Interned(rule.compute, input));
      if (differs) {
        return Error(Diag::kPlan, "lines {} and {} of the plan place parameter `{}` differently",
                     found->line, rule.line, input.label);
      }
      if (found == nullptr) found = &rule;
    }
    if (found == nullptr)
      return Error(Diag::kPlan, "parameter `{}` has no placement in the plan", input.label);
    HEDDLE_RETURN_IF_ERROR(CheckFits(input, found->store, found->store_rank, found->line));
    HEDDLE_RETURN_IF_ERROR(CheckFits(input, found->compute, found->compute_rank, found->line));
    if (!found->unit.empty()) input.unit = found->unit;
    PlacedInputs::ParamPlan& param = out_.params[input.index];
    param = {Interned(found->store, input), Interned(found->compute, input), input.unit};
    out_.placement[input.value.index()] = param.store;
    return Done{};
  }

  Status PlaceOther(const Input& input) {
    bool batch = input.role == InputRole::kBatch || input.role == InputRole::kTangent;
    out_.is_batch[input.value.index()] = batch;
    for (const PlanInput& rule : plan_.inputs) {
      if (!MatchesPattern(rule.pattern, input.label)) continue;
      // A star matches only inputs of the batch. Other inputs must be named.
      if (!batch && rule.pattern != input.label) continue;
      HEDDLE_RETURN_IF_ERROR(CheckFits(input, rule.placement, rule.rank, rule.line));
      PlacementId id = Interned(rule.placement, input);
      PlacementId& at = out_.placement[input.value.index()];
      if (at != PlacementTable::kReplicated && at != id) {
        return Error(Diag::kPlan,
                     "line {} of the plan places `{}` differently from an earlier line", rule.line,
                     input.label);
      }
      at = id;
      if (!batch) continue;
      for (const Axes& axes : graph_.placements()[id].splits) {
        for (AxisId axis : axes) out_.batch_axes.Add(axis);
      }
    }
    return Done{};
  }

  // Moments have the placement of their parameter; counters are replicated.
  void PlaceState(const Input& input) {
    const Input* param = graph_.FindParam(input.index);
    if (param != nullptr && graph_.types().dims(graph_.type(param->value)).size() == Rank(input))
      out_.placement[input.value.index()] = out_.placement[param->value.index()];
  }

  // Dimensions that the plan omits are not split.
  PlacementId Interned(const Placement& placement, const Input& input) {
    Placement full = placement;
    full.splits.resize(Rank(input));
    return graph_.placements().Intern(OnMesh(full, plan_.mesh));
  }

  // A gradient must have the placement of its parameter.
  Status CheckGradients() const {
    for (const Output& output : graph_.outputs()) {
      if (output.role != OutputRole::kGrad || out_.params.contains(output.index)) continue;
      return Error(Diag::kPlan, "%{} is the gradient of parameter {}, which is not an input of @{}",
                   graph_.name(output.value), output.index, graph_.name());
    }
    return Done{};
  }

  Graph& graph_;
  const Plan& plan_;
  PlacedInputs out_;
};

}  // namespace

Result<PlacedInputs> PlaceInputs(Graph& graph, const Plan& plan) {
  return InputPlacer(graph, plan).Run();
}

Placement OnMesh(const Placement& placement, const Mesh& mesh) {
  Placement out;
  for (const Axes& axes : placement.splits) {
    Axes kept;
    for (AxisId axis : axes) {
      if (mesh[axis].size > 1) kept.Add(axis);
    }
    out.splits.push_back(kept);
  }
  for (const Partial& partial : placement.partials) {
    if (mesh[partial.axis].size > 1) out.partials.push_back(partial);
  }
  out.Normalize();
  return out;
}

}  // namespace heddle::compile
