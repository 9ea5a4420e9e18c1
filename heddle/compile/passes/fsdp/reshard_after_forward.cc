// reshard-after-forward: frees gathered weights after forward and gathers them again in backward,
// as FSDP2 does.
//
//  fwd:                                             fwd:
//   %u! = comm.all_gather(%h, unit="a", ...)         (the same)
//   %u  = comm.wait(%u!)
//   %y  = aten.mm(%x, %u)
//  bwd:                                             bwd:
//   %dx = aten.mm(%dy, %u)               becomes     %u_1! = comm.all_gather(%h_1, unit="a", ...)
//                                                    %u_1  = comm.wait(%u_1!)
//                                                    %dx   = aten.mm(%dy, %u_1)
//
// One walk in execution order. If a node after forward reads a weight that forward gathered, the
// nodes that produce the weight are copied before it, casts and layouts included, each node once.
// For a kept unit, only layouts are copied: the result of the wait crosses to backward, marked
// `must_save`, without transposed or converted copies. For a unit that is resharded among fewer
// ranks, each of these ranks keeps its part of the whole, and backward gathers the parts.
//
// Keys and values that context-parallel ranks gather follow the policy of their unit. A unit that
// keeps its weights also keeps them (context_gathers.h).
#include <algorithm>
#include <functional>
#include <map>
#include <set>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/fsdp/backward_copies.h"
#include "heddle/compile/passes/fsdp/context_gathers.h"
#include "heddle/compile/passes/fsdp/unit_policy.h"
#include "heddle/core/analysis/weights.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/edit/inserter.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

struct ReshardOptions {
  std::string policy = "default";
};

// Whether a node after forward reads a weight that forward gathered.
bool Crosses(const Graph& graph, const Weights& weights, NodeId node, ValueId v) {
  return graph[node].phase != Phase::kForward && weights.is_gathered(v) &&
         graph[graph[v].producer].phase == Phase::kForward;
}

bool IsKeptOnPurpose(const Value& value) {
  return value.keep == Keep::kMustSave || value.keep == Keep::kOffload;
}

class Resharder {
 public:
  Resharder(Graph& graph, const UnitPolicy& policy, PassContext& context)
      : graph_(graph),
        policy_(policy),
        context_(context),
        weights_(graph),
        rewriter_(graph),
        inserter_(graph, rewriter_),
        copies_(graph, rewriter_, [this](ValueId v) { return IsMadeAgain(v); }) {}

  Result<Changed> Run() { return rewriter_.Finish(Walk()); }

 private:
  Status Walk() {
    HEDDLE_RETURN_IF_ERROR(policy_.CheckUnits(Units()));
    size_t count = graph_.node_count();
    for (uint32_t n = 0; n < count; ++n) {
      NodeId node{n};
      for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
        ValueId v = graph_.operands(node)[i];
        if (!Crosses(graph_, weights_, node, v)) continue;
        if (!crosses_) first_unit_ = WithoutGroup(weights_.unit(v));
        crosses_ = true;
        HEDDLE_RETURN_IF_ERROR(CopyBefore(node, v));
        if (ValueId here = copies_.Here(v); here != v) rewriter_.SetOperand(node, i, here);
      }
    }
    for (int64_t kept = ReuseContextGathers(graph_, KeepsContext(), rewriter_); kept > 0; --kept)
      context_.Count("kept");
    MakeRemarks();
    return Done{};
  }

  // Whether attention in a scope keeps gathered keys and values: if its unit keeps its weights.
  std::function<bool(std::string_view scope)> KeepsContext() const {
    return [this, units = Units()](std::string_view scope) {
      for (std::string_view unit : units) {
        bool inside = scope == unit || (scope.starts_with(unit) && scope[unit.size()] == '.');
        if (inside && policy_.of(unit).kind == Reshard::Kind::kNever) return true;
      }
      return false;
    };
  }

  std::vector<std::string_view> Units() const {
    std::vector<std::string_view> units;
    std::set<std::string_view> seen;
    for (NodeId id : graph_.nodes()) {
      if (!MovesWeight(graph_, id)) continue;
      for (size_t i = 0; i < graph_.operands(id).size(); ++i) {
        std::string_view unit = WithoutGroup(UnitOf(graph_, id, i));
        if (seen.insert(unit).second) units.push_back(unit);
      }
    }
    return units;
  }

  // The policy for `v`: gather it again with the nodes that produce it, keep it, or keep a part.
  Reshard PolicyOf(ValueId v) const {
    using enum Reshard::Kind;
    if (IsKeptOnPurpose(graph_[v])) return {kNever};
    if (graph_[graph_[v].producer].op != op::comm_wait || !weights_.is_gathered(v))
      return {kAlways};
    std::string_view unit = WithoutGroup(weights_.unit(v));
    Reshard reshard = policy_.of(unit);
    if (reshard.kind == kDefault) reshard.kind = unit == first_unit_ ? kNever : kAlways;
    return reshard;
  }

  // Whether the nodes that produce `v` are copied for `node_`. Otherwise `v` is kept, or gathered
  // from parts.
  Result<bool> IsMadeAgain(ValueId v) {
    const Reshard reshard = PolicyOf(v);
    if (reshard.kind == Reshard::Kind::kGroup)
      HEDDLE_RETURN_IF_ERROR(GatherFromPart(v, reshard.ranks));
    if (reshard.kind == Reshard::Kind::kNever) KeepForBackward(v);
    return reshard.kind != Reshard::Kind::kGroup && reshard.kind != Reshard::Kind::kNever;
  }

  Status CopyBefore(NodeId node, ValueId v) {
    node_ = node;
    HEDDLE_TRY(NodeId taker, copies_.CopyBefore(node, v));
    if (taker) KeepForBackward(v);
    for (const auto& [original, copy] : copies_.TakeCopies()) {
      context_.Count("copies");
      if (MovesWeight(graph_, original)) context_.Count("gathers");
    }
    return Done{};
  }

  // The innermost axes of a gather with `ranks` ranks in total.
  Result<Axes> InnerAxes(NodeId gather, int64_t ranks) const {
    const Axes over = std::get<Axes>(*graph_.attrs(gather).Find("over"));
    for (size_t first = over.size(); first-- > 0;) {
      Axes inner;
      for (size_t i = first; i < over.size(); ++i) inner.Add(over[i]);
      if (context_.mesh().Size(inner) == ranks) return inner;
    }
    return Error(
        Diag::kPassOption,
        "no innermost axes of [{}], over which %{} is gathered, have {} ranks; the mesh is [{}]",
        Format(context_.mesh(), over), graph_.name(graph_[gather].first_result), ranks,
        Format(context_.mesh()));
  }

  Status GatherFromPart(ValueId v, int64_t ranks) {
    NodeId wait = graph_[v].producer;
    NodeId gather = weights_.gather(v);
    size_t i = v.index() - graph_[wait].first_result.index();
    HEDDLE_TRY(Axes inner, InnerAxes(gather, ranks));
    const AttrValue* dim = graph_.attrs(gather).Find("dim");
    Attrs part_attrs;
    part_attrs.Set("over", inner);
    if (dim != nullptr && EachInt(*dim, i) != 0) part_attrs.Set("dim", EachInt(*dim, i));
    OpArgs args(graph_.ops()[op::shard_slice], part_attrs, context_.mesh(),
                graph_.types().symbols(), {graph_.types()[graph_.type(v)]});
    HEDDLE_TRY(Types part, InferTypes(args));
    std::string name(graph_.name(v));
    ValueId kept = inserter_.Add(Inserter::After(wait), op::shard_slice, name, {v}, part_attrs,
                                 graph_.types().Intern(part[0]));
    rewriter_.SetKeep(kept, Keep::kMustSave);
    Attrs attrs = part_attrs;
    attrs.list_sizes = {1};
    attrs.Set("why", Why::kUnshard);
    if (!weights_.unit(v).empty()) attrs.Set("unit", std::string(weights_.unit(v)));
    TypeId whole = graph_.type(v);
    const Inserter::Place here{node_, false, wait};
    ValueId handle = inserter_.Add(here, op::comm_all_gather, name + "!", {kept}, attrs,
                                   graph_.types().Async({&whole, 1}));
    copies_.Replace(v, inserter_.Add(here, op::comm_wait, name, {handle}, {}, whole));
    context_.Count("gathers");
    context_.Count("parts");
    return Done{};
  }

  void KeepForBackward(ValueId v) {
    copies_.Keep(v);
    if (!IsKeptOnPurpose(graph_[v])) rewriter_.SetKeep(v, Keep::kMustSave);
    context_.Count("kept");
    auto [at, added] = kept_.try_emplace(std::string(weights_.unit(v)), Kept{v, 0, {}});
    ++at->second.count;
    at->second.bytes += graph_.types().bytes(graph_.type(v));
  }

  void MakeRemarks() {
    for (const auto& [unit, kept] : kept_) {
      context_.AddRemark(graph_, kept.first, RemarkKind::kWeightKept,
                         "unit `{}` keeps {} for backward, {}", unit,
                         Counted(kept.count, "gathered weight"), Format(kept.bytes));
    }
    if (!crosses_)
      context_.AddRemark(graph_, ValueId(), RemarkKind::kNoEffect,
                         "backward reads no weight that forward gathered");
  }

  Graph& graph_;
  const UnitPolicy& policy_;
  PassContext& context_;
  Weights weights_;
  Rewriter rewriter_;
  Inserter inserter_;
  BackwardCopies copies_;
  // The node of backward that reads a weight.
  NodeId node_;
  struct Kept {
    ValueId first;
    int64_t count;
    Bytes bytes;
  };
  std::map<std::string, Kept> kept_;
  bool crosses_ = false;
  // The unit that backward needs first.
  std::string first_unit_;
};

Result<Changed> ReshardAfterForward(Graph& graph, const ReshardOptions& options,
                                    PassContext& context) {
  HEDDLE_TRY(UnitPolicy policy, UnitPolicy::Parse(options.policy));
  return Resharder(graph, policy, context).Run();
}

// Fails if forward passes a layout of a gathered weight, or an unmarked weight, to backward.
Status NothingCrosses(const Module& module) {
  for (const Graph& graph : module.graphs) {
    Weights weights(graph);
    for (NodeId node : graph.nodes()) {
      for (ValueId v : graph.operands(node)) {
        if (!Crosses(graph, weights, node, v) || IsKeptOnPurpose(graph[v])) continue;
        return Error(Diag::kWeightCrosses,
                     "forward gathers `%{}` of unit `{}`, and `%{}` reads it in backward, but it "
                     "is not marked to be kept",
                     graph.name(v), weights.unit(v), graph.name(graph[node].first_result));
      }
    }
  }
  return Done{};
}

constexpr OptionDef kReshardAfterForwardOptions[] = {Option<&ReshardOptions::policy>(
    "policy",
    "when to free gathered weights: always, never, a number N (each rank keeps a part, and "
    "backward gathers among N ranks), or default (always, except the unit that backward needs "
    "first); policies of single units follow, as in \"default,layers.*=never\"")};
constexpr std::string_view kReshardAfterForwardStats[] = {"gathers", "copies", "kept", "parts"};

}  // namespace

HEDDLE_DEFINE_PASS(reshard_after_forward){
    .name = "reshard-after-forward",
    .summary = "Frees gathered weights after forward and gathers them again in backward",
    .run = Run<ReshardAfterForward>,
    .make_options = Make<ReshardOptions>,
    .options = kReshardAfterForwardOptions,
    .any_view = false,
    .needs = View::kLocal,
    .stats = kReshardAfterForwardStats,
    .ensures = NothingCrosses,
};

}  // namespace heddle::compile
