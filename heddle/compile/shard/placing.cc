#include "heddle/compile/shard/placing.h"

#include <algorithm>
#include <set>

#include "heddle/compile/shard/axis_choice.h"
#include "heddle/compile/shard/op_splits.h"

namespace heddle::compile {

namespace {

class Placer {
 public:
  Placer(const PlacingRequest& request, const Mesh& mesh)
      : request_(request),
        factors_(*request.factors),
        mesh_(mesh),
        choices_(request, mesh),
        axes_of_(factors_.factors.size()) {
    proposals_.resize(request.operands.size());
    for (size_t i = 0; i < request.operands.size(); ++i) Propose(i);
  }

  Result<NodePlacing> Run() {
    if (factors_.sums_parts) return SumParts();
    for (AxisId axis = 0; axis < mesh_.axes().size(); ++axis) {
      if (!Concerned(axis)) continue;
      if (request_.local.contains(axis)) {
        HEDDLE_RETURN_IF_ERROR(SplitLocally(axis));
      } else {
        HEDDLE_RETURN_IF_ERROR(CheckContraction(axis));
        HEDDLE_RETURN_IF_ERROR(Choose(axis));
      }
    }
    if (request_.goal) SplitForGoal(*request_.goal);
    OrderAxes();
    while (true) {
      NodePlacing out;
      std::optional<FactorId> blocked = Build(out);
      if (!blocked) return Checked(std::move(out));
      // The inner axis gives way.
      Axes& axes = axes_of_[*blocked];
      Axes fewer;
      for (size_t i = 0; i + 1 < axes.size(); ++i) fewer.Add(axes[i]);
      axes = fewer;
    }
  }

 private:
  struct Proposal {
    AxisId axis;
    FactorId factor;
  };

  const TensorFactors& dims(size_t operand) const { return factors_.operands[operand]; }

  // Proposes the factors that the splits of operand `i` suggest.
  void Propose(size_t i) {
    const OperandState& operand = request_.operands[i];
    if (operand.is_free || operand.type->is_none()) return;
    for (size_t d = 0; d < operand.placement.splits.size(); ++d) {
      const Axes& axes = operand.placement.splits[d];
      auto found = FactorsOfAxes(dims(i)[d], axes, factors_, mesh_);
      for (size_t k = 0; k < axes.size(); ++k) {
        if (found[k]) proposals_[i].push_back({axes[k], *found[k]});
      }
    }
  }

  bool Concerned(AxisId axis) const {
    auto has = [&](const Placement& p) { return StateOn(p, axis).use != AxisUse::kReplicated; };
    for (const OperandState& operand : request_.operands) {
      if (!operand.is_free && has(operand.placement)) return true;
    }
    return request_.wanted_results && std::ranges::any_of(*request_.wanted_results, has);
  }

  bool Splittable(FactorId id, AxisId axis) const {
    const Factor& factor = factors_.factors[id];
    if (factor.kind == FactorKind::kWhole) return false;
    if (factor.may_be_empty()) return true;
    // The lengths of parts depend on the order of the axes.
    Axes axes = axes_of_[id];
    axes.Add(axis);
    return AcceptsParts(factor, Ordered(id, axes), mesh_);
  }

  // The choices, in the order that breaks ties.
  std::vector<Choice> Choices(AxisId axis) const {
    std::vector<Choice> kept;
    std::vector<Choice> reduced;
    auto add = [&](FactorId f) {
      if (!Splittable(f, axis)) return;
      auto& list = factors_.factors[f].kind == FactorKind::kKeep ? kept : reduced;
      Choice choice{Choice::Kind::kSplit, f};
      if (std::ranges::find(list, choice) == list.end()) list.push_back(choice);
    };
    if (request_.wanted_results) {
      for (FactorId f = 0; f < factors_.factors.size(); ++f) add(f);
    }
    for (const auto& list : proposals_) {
      for (const Proposal& p : list) {
        if (p.axis == axis) add(p.factor);
      }
    }
    kept.insert(kept.end(), reduced.begin(), reduced.end());
    for (uint32_t g = 0; g < factors_.linear.size(); ++g)
      kept.push_back({Choice::Kind::kLinear, g});
    kept.push_back({});
    return kept;
  }

  Status Choose(AxisId axis) {
    std::optional<int64_t> best_cost;
    Choice best;
    for (const Choice& choice : Choices(axis)) {
      if (!MeetsWanted(axis, choice)) continue;
      std::optional<int64_t> total = 0;
      for (size_t i = 0; i < request_.operands.size() && total; ++i) {
        std::optional<int64_t> cost = choices_.Cost(i, axis, choice);
        total = cost ? std::optional(*total + *cost) : std::nullopt;
      }
      if (!total || (best_cost && *best_cost <= *total)) continue;
      best_cost = total;
      best = choice;
    }
    if (!best_cost) {
      return Error(Diag::kPlacement,
                   "no split of the op over `{}` gives the placements of its results",
                   mesh_[axis].name);
    }
    Apply(axis, best);
    return Done{};
  }

  bool MeetsWanted(AxisId axis, const Choice& choice) const {
    if (!request_.wanted_results) return true;
    for (size_t r = 0; r < request_.wanted_results->size(); ++r) {
      if ((*request_.results)[r].is_none()) continue;
      if (StateOn((*request_.wanted_results)[r], axis) != choices_.Made(r, choice)) return false;
    }
    return true;
  }

  void Apply(AxisId axis, const Choice& choice) {
    if (choice.kind == Choice::Kind::kSplit) axes_of_[choice.index].Add(axis);
    if (choice.kind == Choice::Kind::kLinear) linear_.push_back({axis, choice.index});
  }

  // Two operands split a contracted loop over different axes, which has no meaning.
  Status CheckContraction(AxisId axis) const {
    for (size_t i = 0; i < proposals_.size(); ++i) {
      for (const Proposal& p : proposals_[i]) {
        if (p.axis != axis || factors_.factors[p.factor].kind != FactorKind::kReduce) continue;
        for (size_t j = 0; j < proposals_.size(); ++j) {
          Axes mine = ProposedAxes(i, p.factor);
          Axes other = ProposedAxes(j, p.factor);
          if (j == i || other.empty() || other == mine) continue;
          return Error(
              Diag::kContraction,
              "operands {} and {} split the summed dimension differently: over [{}] and over [{}]",
              std::min(i, j), std::max(i, j), Format(mesh_, i < j ? mine : other),
              Format(mesh_, i < j ? other : mine));
        }
      }
    }
    return Done{};
  }
  Axes ProposedAxes(size_t operand, FactorId factor, bool with_local = false) const {
    Axes axes;
    for (const Proposal& p : proposals_[operand]) {
      if (p.factor == factor && (with_local || !request_.local.contains(p.axis))) axes.Add(p.axis);
    }
    return axes;
  }

  // Inside a local region, operands keep their placements.
  Status SplitLocally(AxisId axis) {
    bool any = false;
    auto split = [&](FactorId f) {
      axes_of_[f].Add(axis);
      any = true;
    };
    for (const auto& list : proposals_) {
      for (const Proposal& p : list) {
        if (p.axis != axis) continue;
        const Factor& factor = factors_.factors[p.factor];
        if (factor.kind == FactorKind::kWhole && !factor.local)
          return Error(Diag::kPlacement,
                       "the op needs a whole dimension that is split over `{}`, but the plan makes "
                       "the module local over that axis",
                       mesh_[axis].name);
        split(p.factor);
      }
    }
    if (!any) return Done{};
    HEDDLE_RETURN_IF_ERROR(CheckOwnParts(axis));
    // Constants take part in local loops.
    for (size_t i = 0; i < request_.operands.size(); ++i) {
      if (!request_.operands[i].is_free) continue;
      for (const DimFactors& dim : dims(i)) {
        for (FactorId f : dim) {
          if (factors_.factors[f].local) split(f);
        }
      }
    }
    return Done{};
  }

  // Rejects mixing tensors that each rank has for itself, such as local rows, with shared ones,
  // such as all experts.
  Status CheckOwnParts(AxisId axis) const {
    for (size_t i = 0; i < request_.operands.size(); ++i) {
      const OperandState& operand = request_.operands[i];
      if (operand.is_free || operand.type->is_none() || choices_.IsUnread(i)) continue;
      for (size_t d = 0; d < dims(i).size(); ++d) {
        for (FactorId f : dims(i)[d]) {
          bool own = factors_.factors[f].local && axes_of_[f].contains(axis);
          if (!own || operand.placement.split(d).contains(axis)) continue;
          return Error(Diag::kPlacement,
                       "operand {} is not split over `{}` like the others, but the plan makes the "
                       "module local over that axis",
                       i, mesh_[axis].name);
        }
      }
    }
    return Done{};
  }

  // Splitting loops that only the result has is free, and saves work.
  void SplitForGoal(const Placement& goal) {
    for (size_t d = 0; d < goal.splits.size() && d < factors_.results[0].size(); ++d) {
      const DimFactors& dim = factors_.results[0][d];
      if (dim.size() != 1) continue;
      bool shared = std::ranges::any_of(factors_.operands, [&](const TensorFactors& t) {
        return DimWith(t, dim[0]).has_value();
      });
      if (shared) continue;
      for (AxisId axis : goal.splits[d]) {
        if (!Concerned(axis) && Splittable(dim[0], axis)) axes_of_[dim[0]].Add(axis);
      }
    }
  }

  // Orders the axes of a factor as in the wanted results, or else as in the largest operand.
  void OrderAxes() {
    for (FactorId f = 0; f < axes_of_.size(); ++f) axes_of_[f] = Ordered(f, axes_of_[f]);
  }
  Axes Ordered(FactorId factor, const Axes& axes) const {
    if (axes.size() < 2) return axes;
    Axes model;
    int64_t most = -1;
    for (size_t i = 0; i < proposals_.size(); ++i) {
      int64_t bytes = choices_.PartBytes(i, UINT8_MAX);
      Axes proposed = ProposedAxes(i, factor, /*with_local=*/true);
      if (proposed.empty() || bytes <= most) continue;
      most = bytes;
      model = proposed;
    }
    if (request_.wanted_results) model = Joined(WantedOrder(factor), model);
    Axes ordered;
    for (AxisId axis : model) {
      if (axes.contains(axis)) ordered.Add(axis);
    }
    return Joined(ordered, axes);
  }
  Axes WantedOrder(FactorId factor) const {
    Axes order;
    for (size_t r = 0; r < request_.wanted_results->size(); ++r) {
      std::optional<size_t> dim = DimWith(factors_.results[r], factor);
      if (dim) order = Joined(order, (*request_.wanted_results)[r].split(*dim));
    }
    return order;
  }

  // If all operands are split over the same axes, keeps them and returns a sum that is pending over
  // these axes. Gathers others.
  Result<NodePlacing> SumParts() const {
    NodePlacing out;
    std::optional<std::set<AxisId>> common;
    bool alike = true;
    for (const OperandState& operand : request_.operands) {
      std::set<AxisId> axes;
      for (const Axes& split : operand.placement.splits) axes.insert(split.begin(), split.end());
      alike &= operand.placement.partials.empty() && (!common || *common == axes);
      common = std::move(axes);
    }
    for (const OperandState& operand : request_.operands)
      out.operands.push_back(alike ? operand.placement : Placement());
    Placement result;
    for (AxisId axis : alike&& common ? *common : std::set<AxisId>())
      result.partials.push_back({axis, ReduceOp::kSum});
    out.results.assign(request_.results->size(), result);
    return Checked(std::move(out));
  }

  // Builds the resulting placements; or returns the factor that has to give up an axis.
  std::optional<FactorId> Build(NodePlacing& out) const {
    for (size_t i = 0; i < request_.operands.size(); ++i) {
      const OperandState& operand = request_.operands[i];
      Placement placement;
      if (!operand.type->is_none()) {
        if (std::optional<FactorId> blocked = SplitsOf(dims(i), placement)) return blocked;
        PassThrough(i, placement);
      }
      placement.Normalize();
      out.operands.push_back(std::move(placement));
    }
    for (size_t r = 0; r < request_.results->size(); ++r) {
      Placement placement;
      if (!(*request_.results)[r].is_none()) {
        if (std::optional<FactorId> blocked = SplitsOf(factors_.results[r], placement))
          return blocked;
        AddPartials(r, placement);
      }
      placement.Normalize();
      out.results.push_back(std::move(placement));
    }
    return std::nullopt;
  }

  std::optional<FactorId> SplitsOf(const TensorFactors& dims, Placement& placement) const {
    placement.splits.resize(dims.size());
    for (size_t d = 0; d < dims.size(); ++d) {
      DimAxes found = AxesOfDim(dims[d], axes_of_, factors_, mesh_);
      if (found.blocked) return found.blocked;
      placement.splits[d] = found.axes;
    }
    return std::nullopt;
  }

  // Keeps placements of operands that need no split loop: pending sums, and splits of unread
  // operands.
  void PassThrough(size_t i, Placement& placement) const {
    for (auto [axis, group] : linear_) {
      const auto& members = factors_.linear[group];
      if (std::ranges::find(members, i) != members.end())
        placement.partials.push_back({axis, ReduceOp::kSum});
    }
    const Placement& have = request_.operands[i].placement;
    if (request_.operands[i].is_free) return;
    for (const Partial& partial : have.partials) {
      // A sum from outside a local region is reduced where other operands are split.
      bool own = request_.local.contains(partial.axis) &&
                 StateOn(placement, partial.axis).use == AxisUse::kReplicated;
      if (choices_.IsUnread(i) || own) placement.partials.push_back(partial);
    }
    if (!choices_.IsUnread(i)) return;
    for (size_t d = 0; d < have.splits.size(); ++d) {
      if (!choices_.HasFactors(i, d)) placement.splits[d] = have.splits[d];
    }
  }

  void AddPartials(size_t r, Placement& placement) const {
    for (auto [axis, group] : linear_) placement.partials.push_back({axis, ReduceOp::kSum});
    for (FactorId f = 0; f < axes_of_.size(); ++f) {
      const Factor& factor = factors_.factors[f];
      if (DimWith(factors_.results[r], f)) continue;
      for (AxisId axis : axes_of_[f]) {
        bool summed = factor.kind == FactorKind::kReduce || factor.local;
        if (summed && StateOn(placement, axis).use == AxisUse::kReplicated)
          placement.partials.push_back({axis, factor.reduce});
      }
    }
    // Counts that each rank computed from its own tokens stay local.
    for (size_t i = 0; i < request_.operands.size(); ++i) {
      if (choices_.IsUnread(i) || request_.operands[i].is_free) continue;
      for (const Partial& partial : request_.operands[i].placement.partials) {
        if (request_.local.contains(partial.axis) &&
            StateOn(placement, partial.axis).use == AxisUse::kReplicated)
          placement.partials.push_back(partial);
      }
    }
  }

  // Finds an axis that occurs twice in a placement, which is possible if loops are local.
  std::optional<AxisId> AxisTwice(const std::vector<Placement>& placements) const {
    for (const Placement& placement : placements) {
      Axes seen;
      for (const Axes& axes : placement.splits) {
        for (AxisId axis : axes) {
          if (!seen.Add(axis)) return axis;
        }
      }
    }
    return std::nullopt;
  }

  Result<NodePlacing> Checked(NodePlacing out) const {
    for (const auto* placements : {&out.operands, &out.results}) {
      if (std::optional<AxisId> axis = AxisTwice(*placements))
        return Error(Diag::kPlacement,
                     "operands are split over `{}` along different loops, but the plan makes the "
                     "module local over that axis",
                     mesh_[*axis].name);
    }
    if (request_.wanted_results) {
      for (size_t r = 0; r < out.results.size(); ++r) {
        if ((*request_.results)[r].is_none() || out.results[r] == (*request_.wanted_results)[r])
          continue;
        return Error(Diag::kPlacement, "the op cannot compute result {} in its placement", r);
      }
    }
    for (AxisId axis = 0; axis < mesh_.axes().size(); ++axis) {
      bool had = false;
      for (const OperandState& operand : request_.operands)
        had |= !operand.is_free && StateOn(operand.placement, axis).use == AxisUse::kSplit;
      auto has = [&](const Placement& p) { return StateOn(p, axis).use != AxisUse::kReplicated; };
      if (had && std::ranges::none_of(out.operands, has)) out.dropped.Add(axis);
    }
    return out;
  }

  struct LinearAxis {
    AxisId axis;
    uint32_t group;
  };

  const PlacingRequest& request_;
  const Factors& factors_;
  const Mesh& mesh_;
  AxisChoices choices_;
  std::vector<std::vector<Proposal>> proposals_;
  std::vector<Axes> axes_of_;
  std::vector<LinearAxis> linear_;
};

}  // namespace

Result<NodePlacing> PlaceNode(const PlacingRequest& request, const Mesh& mesh) {
  return Placer(request, mesh).Run();
}

}  // namespace heddle::compile
