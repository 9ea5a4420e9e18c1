#include "heddle/search/placement/placement_decisions.h"

#include <algorithm>
#include <set>

#include "heddle/compile/passes/parallel/propagate/module_boundaries.h"
#include "heddle/compile/plan/patterns.h"
#include "heddle/compile/shard/node_facts.h"
#include "heddle/core/analysis/uses.h"
#include "heddle/core/ops/ops.h"
#include "heddle/search/placement/repeat_groups.h"

namespace heddle::search {
namespace {

constexpr uint32_t kWholeDecision = 0;
// Work of listing one choice (work_limit.h).
constexpr uint64_t kWorkOfChoice = 1000;

compile::OpSplit Lying(Placement placement) { return {{}, {std::move(placement)}}; }

class DecisionFinder {
 public:
  DecisionFinder(const Graph& graph, const compile::Plan& plan, const WorkLimit& limit)
      : graph_(graph), plan_(plan), limit_(limit), facts_(graph, plan.mesh) {
    out_.all.push_back({.choices = {Lying({})}});
    out_.of_node.assign(graph.node_count(), Decisions::kNone);
    source_.assign(graph.value_count(), {kWholeDecision, true, 0});
    param_.assign(graph.value_count(), nullptr);
  }

  Result<Decisions> Run() {
    HEDDLE_TRY(boundaries_, compile::ModuleBoundaries::Find(graph_, plan_));
    if (!plan_.modules.empty()) uses_.emplace(graph_);
    for (const RepeatGroup& group : GroupRepeatedParams(graph_))
      HEDDLE_RETURN_IF_ERROR(AddParams(group));
    for (uint32_t i = 0; i < graph_.inputs().size(); ++i) HEDDLE_RETURN_IF_ERROR(AddInput(i));
    for (NodeId node : graph_.nodes()) NoteStorage(node);
    for (RepeatGroup& group : GroupRepeatedNodes(graph_)) {
      std::erase_if(group.members, [&](uint32_t n) { return !IsFree(NodeId(n)); });
      if (!group.members.empty()) HEDDLE_RETURN_IF_ERROR(AddNodes(group));
      if (limit_.Spent()) return TooManyChoices(plan_.mesh);
    }
    for (const Output& output : graph_.outputs()) {
      if (output.role == OutputRole::kGrad) NoteGradient(output);
    }
    for (NodeId node : graph_.nodes()) Visit(node);
    for (const Output& output : graph_.outputs()) NoteOutput(output);
    Count();
    return std::move(out_);
  }

 private:
  // How a reader uses a value: directly, as a parameter gathered for compute, or as a gradient
  // after its reduction.
  enum class Form : uint8_t { kItself, kGathered, kReduced };
  using Instance = std::pair<ValueId, Form>;

  const Type TypeOf(ValueId v) const { return graph_.types()[graph_.type(v)]; }

  Status AddParams(const RepeatGroup& group) {
    const Input& first = graph_.inputs()[group.members[0]];
    size_t rank = graph_.types().rank(graph_.type(first.value));
    Decision store{Decision::Kind::kStore, group.pattern, group.members, {}, false};
    Decision compute{Decision::Kind::kCompute, group.pattern, group.members, {}, false};
    for (const compile::PlanParam& rule : plan_.params) {
      if (!compile::MatchesPattern(rule.pattern, first.label)) continue;
      store.is_given = compute.is_given = true;
      store.choices = {Lying(OfRank(rule.store, rank))};
      compute.choices = {Lying(OfRank(rule.compute, rank))};
      break;
    }
    if (!store.is_given) {
      for (const Placement& placement : PlacementsOf(TypeOf(first.value), plan_.mesh)) {
        store.choices.push_back(Lying(placement));
        compute.choices.push_back(Lying(placement));
      }
    }
    auto number = static_cast<uint32_t>(out_.all.size());
    for (uint32_t member : group.members) out_.of_param[graph_.inputs()[member].index] = number;
    out_.all.push_back(std::move(store));
    out_.all.push_back(std::move(compute));
    return Done{};
  }

  // Axes of size one split nothing, and dimensions that a statement does not list are whole.
  Placement OfRank(Placement placement, size_t rank) const {
    placement.splits.resize(rank);
    for (Axes& axes : placement.splits) {
      Axes kept;
      for (AxisId axis : axes) {
        if (plan_.mesh[axis].size > 1) kept.Add(axis);
      }
      axes = kept;
    }
    std::erase_if(placement.partials,
                  [&](const Partial& p) { return plan_.mesh[p.axis].size == 1; });
    placement.Normalize();
    return placement;
  }

  Status AddInput(uint32_t number) {
    const Input& input = graph_.inputs()[number];
    size_t rank = graph_.types().rank(graph_.type(input.value));
    if (input.role == InputRole::kParam) {
      source_[input.value.index()].decision = out_.of_param.at(input.index);
      param_[input.value.index()] = &input;
      return Done{};
    }
    if (input.role == InputRole::kOpt) {
      // Moments have the placement of their parameter; counters are replicated.
      const Input* param = graph_.FindParam(input.index);
      if (param != nullptr && graph_.types().rank(graph_.type(param->value)) == rank)
        source_[input.value.index()].decision = out_.of_param.at(input.index);
      return Done{};
    }
    bool batch = input.role == InputRole::kBatch || input.role == InputRole::kTangent;
    Decision decision{Decision::Kind::kInput, input.label, {number}, {}, false};
    for (const compile::PlanInput& rule : plan_.inputs) {
      if (!compile::MatchesPattern(rule.pattern, input.label) ||
          (!batch && rule.pattern != input.label))
        continue;
      decision.is_given = true;
      decision.choices = {Lying(OfRank(rule.placement, rank))};
    }
    if (!decision.is_given && !batch) return Done{};
    if (!decision.is_given) {
      for (const Placement& placement : PlacementsOf(TypeOf(input.value), plan_.mesh))
        decision.choices.push_back(Lying(placement));
    }
    source_[input.value.index()].decision = static_cast<uint32_t>(out_.all.size());
    out_.all.push_back(std::move(decision));
    return Done{};
  }

  // Casts that narrow a parameter follow its storage, and the norm of all gradients follows the
  // gradients.
  bool IsFree(NodeId node) const {
    return !IsStoredCast(node) && graph_[node].op != op::heddle_squared_norm;
  }
  void NoteStorage(NodeId node) {
    if (!IsStoredCast(node)) return;
    ValueId from = graph_.operands(node)[0];
    ValueId to = graph_[node].first_result;
    param_[to.index()] = param_[from.index()];
    source_[to.index()] = source_[from.index()];
  }
  bool IsStoredCast(NodeId node) const {
    if (graph_[node].phase == Phase::kOptimizer || graph_[node].op != op::_to_copy) return false;
    ValueId from = graph_.operands(node)[0];
    ValueId to = graph_[node].first_result;
    return param_[from.index()] != nullptr && Width(to) < Width(from);
  }
  size_t Width(ValueId v) const { return ItemSize(graph_.types().dtype(graph_.type(v))); }

  Status AddNodes(const RepeatGroup& group) {
    NodeId first(group.members[0]);
    HEDDLE_TRY(Factors factors, facts_.FactorsOf(first));
    std::vector<Type> operands = OperandTypes(graph_, graph_.operands(first));
    std::vector<Type> results;
    for (ValueId v : graph_.results(first)) results.push_back(TypeOf(v));
    HEDDLE_TRY(auto choices, compile::SplitsOf(factors, operands, results, plan_.mesh));
    HEDDLE_RETURN_IF_ERROR(KeepBoundaries(first, choices));
    // Statements may ask for such a split.
    if (plan_.modules.empty()) {
      std::erase_if(choices, [&](const compile::OpSplit& split) {
        return CutsToNothing(operands, split.operands) || CutsToNothing(results, split.results);
      });
    }
    auto number = static_cast<uint32_t>(out_.all.size());
    for (uint32_t member : group.members) {
      out_.of_node[member] = number;
      uint32_t r = 0;
      for (ValueId v : graph_.results(NodeId(member))) source_[v.index()] = {number, true, r++};
    }
    limit_.Spend(kWorkOfChoice * choices.size());
    out_.all.push_back(
        {Decision::Kind::kNode, group.pattern, group.members, std::move(choices), false});
    return Done{};
  }

  // Whether a dimension is split over more ranks than it has elements: the last axis is then
  // useless.
  bool CutsToNothing(const std::vector<Type>& types,
                     const std::vector<Placement>& placements) const {
    for (size_t i = 0; i < types.size(); ++i) {
      for (size_t d = 0; d < placements[i].splits.size(); ++d) {
        const Axes& axes = placements[i].splits[d];
        Dim size = types[i].dims[d];
        if (!axes.empty() && !IsSymbol(size) && plan_.mesh.Size(axes) > size) return true;
      }
    }
    return false;
  }

  // Values that flow into and out of a module in forward must have the placements of the plan.
  Status KeepBoundaries(NodeId node, std::vector<compile::OpSplit>& choices) const {
    if (plan_.modules.empty() || graph_[node].phase != Phase::kForward) return Done{};
    const std::vector<uint32_t>& here = LayersOf(node);
    for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
      ValueId v = graph_.operands(node)[i];
      if (!v || param_[v.index()] != nullptr) continue;
      for (uint32_t layer : compile::Without(here, LayersOf(graph_[v].producer))) {
        const compile::PlanModule& rule = *(*boundaries_)[layer].rule;
        HEDDLE_RETURN_IF_ERROR(
            Keep(node, v, rule, rule.in, choices,
                 [i](const compile::OpSplit& split) { return split.operands[i]; }));
      }
    }
    size_t r = 0;
    for (ValueId v : graph_.results(node)) {
      size_t result = r++;
      for (const auto& [reader, operand] : uses_->of(v)) {
        if (graph_[reader].phase != Phase::kForward) continue;
        for (uint32_t layer : compile::Without(here, LayersOf(reader))) {
          const compile::PlanModule& rule = *(*boundaries_)[layer].rule;
          HEDDLE_RETURN_IF_ERROR(
              Keep(node, v, rule, rule.out, choices,
                   [result](const compile::OpSplit& split) { return split.results[result]; }));
        }
      }
    }
    return Done{};
  }

  const std::vector<uint32_t>& LayersOf(NodeId node) const {
    return boundaries_->of(node ? graph_[node].scope : ScopeId());
  }

  template <typename Where>
  Status Keep(NodeId node, ValueId v, const compile::PlanModule& rule,
              const std::optional<compile::BoundaryPlacement>& boundary,
              std::vector<compile::OpSplit>& choices, Where where) const {
    size_t rank = graph_.types().rank(graph_.type(v));
    if (!boundary || boundary->rank != rank) return Done{};
    Placement wanted = OfRank(boundary->placement, rank);
    std::erase_if(choices, [&](const compile::OpSplit& split) { return where(split) != wanted; });
    if (!choices.empty()) return Done{};
    return Error(Diag::kInfeasible,
                 "line {} of the plan: {} cannot be split so that %{} lies as {}", rule.line,
                 graph_.op(node).name(), graph_.name(v), FormatPlacement(wanted, rank, plan_.mesh));
  }

  // Follows a gradient back through ops with one operand: the values before a widening cast are not
  // reduced yet.
  void NoteGradient(const Output& output) {
    reduced_.emplace(output.value, out_.of_param.at(output.index));
    std::vector<ValueId> chain{output.value};
    while (NodeId node = graph_[chain.back()].producer) {
      auto is_tensor = [](ValueId v) { return static_cast<bool>(v); };
      std::span<const ValueId> operands = graph_.operands(node);
      if (std::ranges::count_if(operands, is_tensor) != 1 || !operands[0]) break;
      chain.push_back(operands[0]);
    }
    for (size_t i = 1; i < chain.size(); ++i) {
      if (Width(chain[i]) < Width(chain[i - 1]))
        narrow_.insert(chain.begin() + static_cast<ptrdiff_t>(i), chain.end());
    }
  }

  void Visit(NodeId node) {
    if (IsStoredCast(node)) {
      NoteStoredCast(node);
      return;
    }
    bool optimizer = graph_[node].phase == Phase::kOptimizer;
    uint32_t decision = out_.of_node[node.index()];
    // A constant has no operands to move.
    if (decision == Decisions::kNone || compile::IsConstant(graph_, node)) return;
    uint32_t i = 0;
    for (ValueId v : graph_.operands(node)) {
      uint32_t operand = i++;
      if (!v) continue;
      Form form = optimizer && reduced_.contains(v)            ? Form::kReduced
                  : !optimizer && param_[v.index()] != nullptr ? Form::kGathered
                                                               : Form::kItself;
      if (form == Form::kGathered) v = FirstCast(v);
      readers_[{v, form}].insert({decision, false, operand});
    }
  }

  // Several consumers have equal casts: all use the gather of the first.
  ValueId FirstCast(ValueId v) {
    return first_cast_.try_emplace({param_[v.index()], graph_.type(v)}, v).first->second;
  }
  void NoteStoredCast(NodeId node) {
    ValueId from = graph_.operands(node)[0];
    ValueId to = graph_[node].first_result;
    FirstCast(to);
    StoredCast cast{source_[from.index()].decision, graph_.type(from), graph_.type(to)};
    ++out_.casts.try_emplace(cast, node, 0).first->second.second;
  }

  void NoteOutput(const Output& output) {
    Slot from = source_[output.value.index()];
    if (output.role == OutputRole::kGrad) {
      Slot to{reduced_.at(output.value), true, 0};
      ++out_.moves[{
          from, graph_.type(output.value), compile::ReduceOrder::kScatterFirst, false, {to}}];
    } else if (output.role == OutputRole::kLoss || output.role == OutputRole::kMetric) {
      Slot to{kWholeDecision, true, 0};
      if (!whole_outputs_.insert(output.value).second) return;
      ++out_.moves[{from, graph_.type(output.value), compile::ReduceOrder::kFewest, false, {to}}];
    } else if (output.role == OutputRole::kUpdate) {
      readers_[{output.value, Form::kItself}].insert(source_[output.target.index()]);
    }
  }

  void Count() {
    for (const auto& [instance, readers] : readers_) {
      auto [v, form] = instance;
      Slot from = source_[v.index()];
      if (form == Form::kReduced) from = {reduced_.at(v), true, 0};
      if (form == Form::kGathered) {
        Slot gathered{from.decision + 1, true, 0};
        ++out_.moves[{from, graph_.type(v), compile::ReduceOrder::kFewest, false, {gathered}}];
        from = gathered;
      }
      std::vector<Slot> to(readers.begin(), readers.end());
      ++out_.moves[{from, graph_.type(v), compile::ReduceOrder::kFewest, narrow_.contains(v), to}];
    }
  }

  const Graph& graph_;
  const compile::Plan& plan_;
  WorkLimit limit_;
  compile::NodeFacts facts_;
  mutable std::optional<compile::ModuleBoundaries> boundaries_;
  std::optional<Uses> uses_;
  Decisions out_;
  // By value: its source, and the parameter whose storage it still is.
  std::vector<Slot> source_;
  std::vector<const Input*> param_;
  std::map<std::pair<const Input*, TypeId>, ValueId> first_cast_;
  // Gradients before their reduction, and the storage that they end in.
  std::map<ValueId, uint32_t> reduced_;
  std::set<ValueId> narrow_;
  // Values that are gathered as outputs; each only once.
  std::set<ValueId> whole_outputs_;
  std::map<Instance, std::set<Slot>> readers_;
};

}  // namespace

const Placement& At(const std::vector<Decision>& decisions, const Slot& slot, size_t choice) {
  const compile::OpSplit& split = decisions[slot.decision].choices[choice];
  return (slot.is_result ? split.results : split.operands)[slot.index];
}

std::vector<Placement> PlacementsOf(const Type& type, const Mesh& mesh) {
  std::vector<Placement> all{Placement{std::vector<Axes>(type.rank()), {}}};
  auto axis_count = static_cast<AxisId>(mesh.axes().size());
  for (AxisId axis = 0; axis < axis_count; ++axis) {
    if (mesh[axis].size == 1) continue;
    size_t before = all.size();
    for (size_t i = 0; i < before; ++i) {
      for (size_t d = 0; d < type.rank(); ++d) {
        for (size_t at = 0; at <= all[i].splits[d].size() && !IsSymbol(type.dims[d]); ++at) {
          Axes axes;
          for (size_t k = 0; k <= all[i].splits[d].size(); ++k) {
            if (k == at) axes.Add(axis);
            if (k < all[i].splits[d].size()) axes.Add(all[i].splits[d][k]);
          }
          if (!compile::LeavesNoneEmpty(type.dims[d], axes, mesh)) continue;
          Placement more = all[i];
          more.splits[d] = axes;
          all.push_back(std::move(more));
        }
      }
    }
  }
  for (Placement& placement : all) placement.Normalize();
  return all;
}

Failure TooManyChoices(const Mesh& mesh) {
  return Error(
      Diag::kNoAnswer,
      "no plan was found: to list and price all choices on the mesh [{}] takes longer; fix "
      "some placements, use fewer axes, or give it more with --time-limit",
      Format(mesh));
}

Result<Decisions> FindDecisions(const Graph& graph, const compile::Plan& plan,
                                const WorkLimit& limit) {
  return DecisionFinder(graph, plan, limit).Run();
}

}  // namespace heddle::search
