// Attention in a module whose plan splits sequences by position.
//
// `context [cp]`: queries stay split. Keys and values are gathered, in backward again:
//
//   %a = aten.transpose.int(%k, dim0=1, dim1=2)           : bf16[1,64{cp},4,16]
//   %b = shard.redistribute(%a, why=context)              : bf16[1,64,4,16]
//   %c = aten.transpose.int(%b, dim0=1, dim1=2)           : bf16[1,4,64,16]
//
// Their gradients are sums over the queries of all ranks. They are reduced in f32, and return to
// the placements of keys and values.
//
// Keys and values of all positions are read as they are, if modules inside gather the latents that
// they come from: `module "attention.wkv_b" in [dp,-,-] why context`. Backward gathers the latents
// again. Their gradients are reduced in f32.
//
// `context [cp] ring` has the same collectives, which `ring-attention` replaces.
//
// `context [cp] heads`: each rank computes some heads for all positions. Queries, keys, values and
// the output move from positions to heads and back. Keys and values with fewer heads than ranks are
// repeated. Backward reads the heads of forward, which take as much memory as the positions.
//
// All moves are of [batch, positions, heads, size], which is how tensors are stored.
#include <algorithm>

#include "heddle/compile/passes/parallel/propagate/propagator.h"
#include "heddle/core/ops/families.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

constexpr size_t kHeads = 1;
constexpr size_t kPositions = 2;

Axes Without(const Axes& axes, const Axes& others) {
  Axes rest;
  for (AxisId axis : axes) {
    if (!others.contains(axis)) rest.Add(axis);
  }
  return rest;
}

bool IsKeyOrValue(std::string_view operand) { return operand == "key" || operand == "value"; }

}  // namespace

const PlanModule* Propagator::ContextOf(NodeId node) const {
  if (FamilyOf(graph_.op(node)) != OpFamily::attention) return nullptr;
  const PlanModule* rule = boundaries_.context(graph_[node].scope);
  return rule != nullptr && mesh_.Size(rule->context) > 1 ? rule : nullptr;
}

bool Propagator::IsBackward(NodeId attention) const {
  return graph_.op(attention).schema.args[0].name != "query";
}

Result<std::vector<PlacementId>> Propagator::EnterAttention(NodeId node, const PlanModule& rule) {
  HEDDLE_TRY(Factors factors, facts_.FactorsOf(node));
  if (!rule.context_heads && std::ranges::none_of(factors.factors, &Factor::counted))
    return Error(Diag::kPlan,
                 "line {} of the plan: {} cannot split queries by position over [{}]; use "
                 "--attention=flash",
                 rule.line, graph_.op(node).name(), Format(mesh_, rule.context));
  HEDDLE_RETURN_IF_ERROR(CheckRing(node, rule));
  std::vector<PlacementId> before;
  for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
    ValueId v = graph_.operands(node)[i];
    before.push_back(v ? At(v) : PlacementTable::kReplicated);
    if (v && rule.context_heads && graph_.op(node).schema.args[i].name == "positions")
      GatherPositions(node, i, rule);
    if (!v || graph_.types().rank(graph_.type(v)) != 4) continue;
    bool key = IsKeyOrValue(graph_.op(node).schema.args[i].name);
    if (!key && !rule.context_heads) continue;
    Placement target = graph_.placements()[At(v)];
    target.splits.resize(4);
    Axes rest = Without(target.splits[kPositions], rule.context);
    if (rest == target.splits[kPositions]) continue;
    target.splits[kPositions] = rest;
    const std::pair moved(v, &rule);
    if (auto known = exchanged_.find(moved); rule.context_heads && known != exchanged_.end()) {
      if (known->second.repeated) RepeatResult(graph_.results(node)[i - 1], known->second.repeated);
      rewriter_.SetOperand(node, i, known->second.heads);
      continue;
    }
    ValueId stored = AddTransposed(Inserter::Before(node), v);
    ValueId repeated;
    if (rule.context_heads) {
      for (AxisId axis : rule.context) target.splits[kHeads].Add(axis);
      HEDDLE_TRY(ValueId enough, RepeatHeads(stored, target.splits[kHeads], node, rule));
      if (enough != stored) repeated = enough;
      if (repeated && IsBackward(node)) RepeatResult(graph_.results(node)[i - 1], repeated);
      stored = enough;
    }
    target.Normalize();
    stored = Redistribute(stored, Transposed(graph_.placements().Intern(std::move(target))),
                          {.why = Why::kContext}, node);
    ValueId whole = AddTransposed(Inserter::Before(node), stored);
    rewriter_.SetOperand(node, i, whole);
    exchanged_[moved] = {whole, repeated};
  }
  return before;
}

Status Propagator::CheckRing(NodeId node, const PlanModule& rule) const {
  if (!rule.context_ring) return Done{};
  if (rule.context.size() != 1)
    return Error(Diag::kPlan, "line {} of the plan: a ring has one axis, not the {} of [{}]",
                 rule.line, rule.context.size(), Format(mesh_, rule.context));
  if (graph_.op(node).schema.Find("positions") != nullptr)
    return Error(Diag::kPlan,
                 "line {} of the plan: {} cannot run in a ring, because ranks see the keys of one "
                 "rank at a time and documents may cross ranks; remove `ring`",
                 rule.line, graph_.op(node).name());
  return Done{};
}

// A rank with some heads of all positions reads the documents of all.
void Propagator::GatherPositions(NodeId node, size_t operand, const PlanModule& rule) {
  ValueId v = graph_.operands(node)[operand];
  Placement target = graph_.placements()[At(v)];
  target.splits.resize(2);
  target.splits[1] = Without(target.splits[1], rule.context);
  target.Normalize();
  auto [at, added] = exchanged_.try_emplace({v, &rule});
  if (added)
    at->second.heads = Redistribute(v, graph_.placements().Intern(std::move(target)),
                                    {.why = Why::kContext}, node);
  rewriter_.SetOperand(node, operand, at->second.heads);
}

// Repeats heads so that every rank of `over` has one. `stored` is [batch, positions, heads, size].
Result<ValueId> Propagator::RepeatHeads(ValueId stored, const Axes& over, NodeId node,
                                        const PlanModule& rule) {
  Type type = graph_.types()[graph_.type(stored)];
  int64_t ranks = mesh_.Size(over);
  Dim heads = type.dims[2];
  if (!IsSymbol(heads) && heads % ranks == 0) return stored;
  if (IsSymbol(heads) || ranks % heads != 0)
    return Error(Diag::kPlan,
                 "line {} of the plan: {} heads of `%{}` cannot be divided evenly among the {} "
                 "ranks of [{}]",
                 rule.line, IsSymbol(heads) ? 0 : heads, graph_.name(stored), ranks,
                 Format(mesh_, over));
  int64_t times = ranks / heads;
  Placement placement = graph_.placements()[At(stored)];
  placement.splits.resize(5);
  placement.Normalize();
  PlacementId wide = graph_.placements().Intern(placement);
  auto add = [&](OpId op, ValueId v, const Attrs& attrs, PlacementId at) {
    return Noted(inserter_.Add(Inserter::Before(node), op, "heads", {v}, attrs,
                               graph_.types().Intern(type), at),
                 at);
  };
  PlacementId narrow = At(stored);
  Attrs attrs;
  attrs.Set("dim", int64_t{3});
  type.dims.insert(type.dims.begin() + 3, 1);
  ValueId v = add(op::unsqueeze, stored, attrs, wide);
  type.dims[3] = times;
  attrs = {};
  attrs.Set("size", type.dims);
  v = add(op::expand, v, attrs, wide);
  attrs = {};
  attrs.Set("memory_format", MemoryFormat::kContiguous);
  v = add(op::clone, v, attrs, wide);
  type.dims.erase(type.dims.begin() + 3);
  type.dims[2] = ranks;
  attrs = {};
  attrs.Set("size", type.dims);
  return add(op::view, v, attrs, narrow);
}

// The gradient of repeated heads has as many heads. `stored` are the heads.
void Propagator::RepeatResult(ValueId grad, ValueId stored) {
  Type type = graph_.types()[graph_.type(grad)];
  repeated_[grad] = type.dims[kHeads];
  type.dims[kHeads] = graph_.types().dims(graph_.type(stored))[2];
  rewriter_.SetType(grad, graph_.types().Intern(type), At(grad));
}

// Adds up the gradients of repeated heads.
ValueId Propagator::SumHeads(ValueId stored, Dim heads) {
  Type type = graph_.types()[graph_.type(stored)];
  int64_t times = type.dims[2] / heads;
  PlacementId narrow = At(stored);
  Placement placement = graph_.placements()[narrow];
  placement.splits.resize(5);
  placement.Normalize();
  PlacementId wide = graph_.placements().Intern(placement);
  type.dims[2] = heads;
  type.dims.insert(type.dims.begin() + 3, times);
  Attrs attrs;
  attrs.Set("size", type.dims);
  ValueId v = Noted(inserter_.Add(inserter_.After(stored), op::view, "heads", {stored}, attrs,
                                  graph_.types().Intern(type), wide),
                    wide);
  type.dims.erase(type.dims.begin() + 3);
  attrs = {};
  attrs.Set("dim", std::vector<int64_t>{3});
  return Noted(inserter_.Add(inserter_.After(v), op::sum_dim_IntList, "heads", {v}, attrs,
                             graph_.types().Intern(type), narrow),
               narrow);
}

void Propagator::LeaveAttention(NodeId node, const std::vector<PlacementId>& before,
                                const PlanModule& rule) {
  // The output is placed like the queries. In backward, the gradient of the output is operand 0,
  // and each result belongs to the next operand.
  bool backward = IsBackward(node);
  for (size_t r = 0; r < (backward ? 3 : 1); ++r) {
    PlacementId target = Summed(before[backward ? r + 1 : 0]);
    ValueId v = graph_.results(node)[r];
    // Keys and values of all positions come from latents, which sum the gradients.
    const Axes& positions = graph_.placements()[target].split(kPositions);
    bool whole = Without(positions, rule.context) == positions;
    if (r > 0 && whole && !rule.context_heads) continue;
    if (At(v) == target) continue;
    DType narrow = graph_.types().dtype(graph_.type(v));
    bool partial = !graph_.placements()[At(v)].partials.empty();
    ValueId moved = AddTransposed(inserter_.After(v), v);
    if (partial) moved = AddCast(moved, DType::kF32);
    moved = RedistributeBehind(moved, Transposed(target), {.why = Why::kContext});
    if (auto repeated = repeated_.find(v); repeated != repeated_.end())
      moved = SumHeads(AddCast(moved, DType::kF32), repeated->second);
    moved = AddCast(moved, narrow);
    returned_[v] = AddTransposed(inserter_.After(moved), moved);
  }
}

// Gradients of latents are sums over the queries of all ranks, like those of keys and values. Sums
// over other axes stay pending.
ValueId Propagator::SumLatents(ValueId grad, PlacementId latents, NodeId node) {
  Placement target = graph_.placements()[Summed(latents)];
  for (const Partial& partial : graph_.placements()[At(grad)].partials) {
    bool summed = std::ranges::any_of(
        target.splits, [&](const Axes& axes) { return axes.contains(partial.axis); });
    if (!summed) target.partials.push_back(partial);
  }
  DType narrow = graph_.types().dtype(graph_.type(grad));
  ValueId wide = AddCast(grad, DType::kF32);
  ValueId sum = Redistribute(wide, graph_.placements().Intern(std::move(target)),
                             {.why = Why::kContext}, node);
  return AddCast(sum, narrow);
}

// Backward computes again what forward expands from gathered latents, so that ranks keep only their
// own positions.
void Propagator::RecomputeFromLatents() {
  if (latents_.empty()) return;
  for (ValueId v : latents_) rewriter_.SetKeep(v, Keep::kPreferRecompute);
  for (uint32_t n = 0; n < graph_.node_count(); ++n) {
    NodeId node{n};
    if (graph_[node].phase != Phase::kForward || FamilyOf(graph_.op(node)) == OpFamily::attention)
      continue;
    if (std::ranges::none_of(graph_.operands(node),
                             [&](ValueId v) { return latents_.contains(v); }))
      continue;
    for (ValueId v : graph_.results(node)) {
      latents_.insert(v);
      if (graph_[v].keep == Keep::kDefault) rewriter_.SetKeep(v, Keep::kPreferRecompute);
    }
  }
}

PlacementId Propagator::Transposed(PlacementId id) {
  Placement placement = graph_.placements()[id];
  placement.splits.resize(4);
  std::swap(placement.splits[kHeads], placement.splits[kPositions]);
  placement.Normalize();
  return graph_.placements().Intern(std::move(placement));
}

ValueId Propagator::AddTransposed(Inserter::Place place, ValueId v) {
  Attrs attrs;
  attrs.Set("dim0", static_cast<int64_t>(kHeads));
  attrs.Set("dim1", static_cast<int64_t>(kPositions));
  Type type = graph_.types()[graph_.type(v)];
  std::swap(type.dims[kHeads], type.dims[kPositions]);
  PlacementId placement = Transposed(At(v));
  return Noted(inserter_.Add(place, op::transpose_int, "context", {v}, attrs,
                             graph_.types().Intern(type), placement),
               placement);
}

// Widens to `dtype`, or narrows back to it.
ValueId Propagator::AddCast(ValueId v, DType dtype) {
  Type type = graph_.types()[graph_.type(v)];
  if (type.dtype == dtype || type.dtype == DType::kF64) return v;
  type.dtype = dtype;
  Attrs attrs;
  attrs.Set("dtype", dtype);
  PlacementId placement = At(v);
  return Noted(inserter_.Add(inserter_.After(v), op::_to_copy, "context", {v}, attrs,
                             graph_.types().Intern(type), placement),
               placement);
}

}  // namespace heddle::compile
