// localize: converts a graph for the whole mesh to the graph of one rank. Sizes become this rank's
// sizes, and each step of a redistribution becomes a collective.
//
//   %y = aten.mm(%x, %u)                               : bf16[32{dp},4096]   becomes   bf16[8,4096]
//   %u = shard.redistribute(%h, why=unshard)           : bf16[1024,4096]     becomes
//
//   %u! = comm.all_gather(%h, over=[dp], why=unshard)  : async bf16[1024,4096]
//   %u  = comm.wait(%u!)                               : bf16[1024,4096]
//
// Sizes that the axes do not divide become chunks, `5{dp}`. Inputs and outputs also keep their
// global types.
#include <map>
#include <tuple>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/parallel/lower/attention_part.h"
#include "heddle/compile/passes/parallel/lower/expert_lowering.h"
#include "heddle/compile/passes/parallel/lower/row_lookup.h"
#include "heddle/compile/shard/check_placements.h"
#include "heddle/compile/shard/redistribution.h"
#include "heddle/core/ir/edit/inserter.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

struct LocalizeOptions {
  bool exact_experts = true;
};

class Localizer {
 public:
  Localizer(Graph& graph, const Mesh& mesh, const LocalizeOptions& options, PassContext& context)
      : graph_(graph),
        mesh_(mesh),
        context_(context),
        rewriter_(graph),
        experts_(graph, mesh, rewriter_, options.exact_experts) {}

  Result<Changed> Run() { return rewriter_.Finish(Walk()); }

 private:
  Status Walk() {
    for (const Misplaced& misplaced : FindMisplaced(graph_, mesh_, 1))
      return Error(Diag::kPlacement, "{}; run `insert-redistributions` first", misplaced.why);
    HEDDLE_RETURN_IF_ERROR(CheckOutputs());
    for (Input& input : graph_.mutable_inputs()) input.global = GlobalOf(input.value);
    for (Output& output : graph_.mutable_outputs()) output.global = GlobalOf(output.value);
    // All types become local in one step. The global ones are kept, because nodes still need them.
    size_t values = graph_.value_count();
    for (uint32_t v = 0; v < values; ++v) {
      global_.push_back({graph_.type(ValueId(v)), graph_[ValueId(v)].placement});
      rewriter_.SetType(ValueId(v), PartOf(global_.back()), PlacementTable::kReplicated);
    }
    // All values have their placements, so regions are no longer needed.
    graph_.SetRegions({});
    size_t nodes = graph_.node_count();
    for (uint32_t n = 0; n < nodes; ++n) {
      NodeId node{n};
      if (graph_[node].op == op::shard_redistribute) {
        HEDDLE_RETURN_IF_ERROR(Communicate(node));
      } else if (experts_.Lowers(graph_[node].op)) {
        HEDDLE_RETURN_IF_ERROR(experts_.Lower(node));
        context_.Count("collectives", graph_[node].op == op::comm_wait ? 1 : 0);
      } else if (IsCausalAttention(graph_, node) && !QueriesOver(node).empty()) {
        AttendToPart(graph_, rewriter_, node, QueriesOver(node));
      } else {
        Shrink(node);
        HEDDLE_RETURN_IF_ERROR(experts_.Follow(node));
      }
    }
    return Done{};
  }

  // The axes that split the queries of an attention node by position.
  Axes QueriesOver(NodeId node) const {
    return PlacementOf(QueryOf(graph_, node)).split(/*positions*/ 2);
  }

  GlobalType GlobalOf(ValueId v) const {
    // If no dimension is split and no sum is pending, the local type is also the global one.
    if (graph_[v].placement == PlacementTable::kReplicated) return {};
    return {graph_.type(v), graph_[v].placement};
  }

  // Gradients and updates must have the placements of their parameters, so that ranks can use them.
  Status CheckOutputs() const {
    for (const Output& output : graph_.outputs()) {
      ValueId owner = output.target;
      if (output.role == OutputRole::kGrad) {
        if (const Input* param = graph_.FindParam(output.index)) owner = param->value;
      }
      if (!owner || graph_[owner].placement == graph_[output.value].placement) continue;
      size_t rank = graph_.types().rank(graph_.type(owner));
      return Error(
          Diag::kPlacement, "%{} is {}, but %{}, which it belongs to, is {}",
          graph_.name(output.value),
          FormatPlacement(graph_.placements()[graph_[output.value].placement], rank, mesh_),
          graph_.name(owner),
          FormatPlacement(graph_.placements()[graph_[owner].placement], rank, mesh_));
    }
    return Done{};
  }

  TypeId PartOf(const GlobalType& global) {
    if (global.placement == PlacementTable::kReplicated) return global.type;
    auto [at, added] = parts_.try_emplace({global.type, global.placement});
    if (added)
      at->second = LocalType(graph_.types()[global.type], graph_.placements()[global.placement],
                             mesh_, graph_.types());
    return at->second;
  }

  const Placement& PlacementOf(ValueId v) const {
    return graph_.placements()[global_[v.index()].placement];
  }

  // Updates attributes that repeat the result's shape, and shifts table lookups to this rank's
  // part.
  void Shrink(NodeId node) {
    const OpDef& def = *graph_.op(node).def;
    ValueId result = graph_[node].result_count > 0 ? graph_[node].first_result : ValueId();
    if (!def.shape_attr.empty() && result &&
        global_[result.index()].placement != PlacementTable::kReplicated) {
      std::span<const Dim> dims = graph_.types().dims(graph_.type(result));
      Attrs attrs = graph_.attrs(node);
      attrs.Set(def.shape_attr, std::vector<int64_t>(dims.begin(), dims.end()));
      rewriter_.SetAttrs(node, graph_.InternAttrs(attrs));
    }
    if (!def.lookup) return;
    ValueId table = TableOf(graph_, node);
    Axes over = PlacementOf(table).split(def.lookup->dim);
    if (over.empty()) return;
    ShiftLookup(graph_, rewriter_, node, over,
                graph_.types().dims(global_[table.index()].type)[def.lookup->dim]);
    context_.Count("shifted_lookups");
  }

  Status Communicate(NodeId node) {
    ValueId from = graph_.operands(node)[0];
    ValueId to = graph_[node].first_result;
    std::span<const Dim> global = graph_.types().dims(global_[to.index()].type);
    Dims dims(global.begin(), global.end());
    // A constant may be created as a pending sum, or stay unchanged.
    if (PlacementOf(from) == PlacementOf(to)) {
      rewriter_.ReplaceValue(to, from);
      rewriter_.Erase(node);
      return Done{};
    }
    const std::optional<RedistributionStep>& step = StepBetween(from, to, dims);
    if (!step) {
      HEDDLE_TRY(auto steps, PlanRedistribution(PlacementOf(from), PlacementOf(to), dims, mesh_));
      return Error(Diag::kRedistribution, "%{} takes {} steps; run `lower` first", graph_.name(to),
                   steps.size());
    }
    if (step->forgets) {
      Forget(node, from, step->over);
      return Done{};
    }
    if (!step->kind) {
      Attrs attrs;
      attrs.Set("over", step->over);
      if (step->dim != 0) attrs.Set("dim", static_cast<int64_t>(step->dim));
      rewriter_.SetOp(node, op::shard_slice, graph_.InternAttrs(attrs));
      return Done{};
    }
    StartAndWait(node, from, *step);
    context_.Count("collectives");
    return Done{};
  }

  // Cached, because layers repeat.
  const std::optional<RedistributionStep>& StepBetween(ValueId from, ValueId to, const Dims& dims) {
    const GlobalType& end = global_[to.index()];
    auto [at, added] =
        steps_.try_emplace({end.type, global_[from.index()].placement, end.placement});
    if (added) at->second = OneStep(PlacementOf(from), PlacementOf(to), dims, mesh_);
    return at->second;
  }

  // All ranks except the first replace a number or vector by zeros.
  void Forget(NodeId node, ValueId from, const Axes& over) {
    Inserter inserter(graph_, rewriter_);
    Attrs place;
    place.Set("size", mesh_.Size(over));
    place.Set("over", over);
    Type number = Type::Tensor(DType::kI64, {});
    ValueId rank = inserter.Add(Inserter::Before(node), op::shard_bound, "rank", {}, place,
                                graph_.types().Intern(number));
    Attrs zero;
    zero.Set("other", int64_t{0});
    number.dtype = DType::kBool;
    ValueId others = inserter.Add(Inserter::Before(node), op::gt_Scalar, "others", {rank}, zero,
                                  graph_.types().Intern(number));
    Attrs value;
    value.Set("value", int64_t{0});
    AttrsId attrs = graph_.InternAttrs(value);
    rewriter_.SetOp(node, op::masked_fill_Scalar, attrs);
    std::vector<ValueId> operands{from, others};
    rewriter_.SetOperands(node, operands, attrs);
  }

  void StartAndWait(NodeId node, ValueId from, const RedistributionStep& step) {
    ValueId to = graph_[node].first_result;
    TypeId element = graph_.type(to);
    ValueId handle =
        Inserter(graph_, rewriter_)
            .Add(Inserter::Before(node), OpOf(*step.kind), fmt::format("{}!", graph_.name(to)),
                 {from}, CommAttrs(graph_.attrs(node), step), graph_.types().Async({&element, 1}));
    rewriter_.SetOperand(node, 0, handle);
    rewriter_.SetOp(node, op::comm_wait, AttrsTable::kEmpty);
  }

  static Attrs CommAttrs(const Attrs& from, const RedistributionStep& step) {
    Attrs attrs;
    attrs.list_sizes = {1};
    attrs.Set("over", step.over);
    if (step.kind == CollectiveKind::kAllToAll) {
      attrs.Set("split_dim", static_cast<int64_t>(step.dim));
      attrs.Set("concat_dim", static_cast<int64_t>(step.concat_dim));
    } else if (step.kind != CollectiveKind::kAllReduce && step.dim != 0) {
      attrs.Set("dim", static_cast<int64_t>(step.dim));
    }
    if (Reduces(*step.kind)) {
      ReduceOp op = from.Find("average") != nullptr ? ReduceOp::kAvg : step.op;
      if (op != ReduceOp::kSum) attrs.Set("op", op);
      if (const AttrValue* scale = from.Find("scale")) attrs.Set("scale", *scale);
    }
    for (std::string_view name : {"why", "unit"}) {
      if (const AttrValue* value = from.Find(name)) attrs.Set(name, *value);
    }
    return attrs;
  }

  Graph& graph_;
  const Mesh& mesh_;
  PassContext& context_;
  Rewriter rewriter_;
  ExpertLowering experts_;
  std::vector<GlobalType> global_;
  std::map<std::pair<TypeId, PlacementId>, TypeId> parts_;
  // Keyed by type and both placements.
  std::map<std::tuple<TypeId, PlacementId, PlacementId>, std::optional<RedistributionStep>> steps_;
};

Result<Changed> Localize(Module& module, const LocalizeOptions& options, PassContext& context) {
  for (Graph& graph : module.graphs)
    HEDDLE_RETURN_IF_ERROR(Localizer(graph, module.mesh, options, context).Run());
  module.view = View::kLocal;
  return Changed::kYes;
}

constexpr OptionDef kLocalizeOptions[] = {
    Option<&LocalizeOptions::exact_experts>("exact_experts",
                                            "give rows of experts their exact number, known at run "
                                            "time, instead of buffers for the worst case")};
constexpr std::string_view kLocalizeStats[] = {"collectives", "shifted_lookups"};

}  // namespace

HEDDLE_DEFINE_PASS(localize){
    .name = "localize",
    .summary = "Converts a graph of the whole mesh to the graph of one rank",
    .run = Run<Localize>,
    .make_options = Make<LocalizeOptions>,
    .options = kLocalizeOptions,
    .any_view = false,
    .needs = View::kGlobal,
    .stats = kLocalizeStats,
};

}  // namespace heddle::compile
