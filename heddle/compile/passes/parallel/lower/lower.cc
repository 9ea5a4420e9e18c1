// lower: divides every redistribution into steps of one collective each, along the shortest path.
//
//   %g = shard.redistribute(%d, why=grad) : f32[8{dp},4]     with %d: f32[8,4]{+rep,+dp} becomes
//
//   %a = shard.redistribute(%d, why=grad) : f32[8{dp},4]{+rep}
//   %g = shard.redistribute(%a, why=grad) : f32[8{dp},4]
//
// The graph stays global; localize turns each step into its collective.
#include <map>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/shard/redistribution.h"
#include "heddle/core/ir/edit/inserter.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

struct LowerOptions {
  bool reduce_first = false;
};

class Lowering {
 public:
  Lowering(Graph& graph, const Mesh& mesh, const LowerOptions& options, PassContext& context)
      : graph_(graph), mesh_(mesh), options_(options), context_(context), rewriter_(graph) {}

  Result<Changed> Run() { return rewriter_.Finish(Walk()); }

 private:
  Status Walk() {
    size_t count = graph_.node_count();
    for (uint32_t n = 0; n < count; ++n) {
      if (graph_[NodeId(n)].op == op::shard_redistribute) HEDDLE_RETURN_IF_ERROR(Cut(NodeId(n)));
    }
    return Done{};
  }

  using Steps = std::vector<RedistributionStep>;

  Result<const Steps*> PathOf(NodeId node) {
    ValueId from = graph_.operands(node)[0];
    ValueId to = graph_[node].first_result;
    bool grad = std::get<Why>(*graph_.attrs(node).Find("why")) == Why::kGrad;
    ReduceOrder order = !grad                   ? ReduceOrder::kFewest
                        : options_.reduce_first ? ReduceOrder::kReduceFirst
                                                : ReduceOrder::kScatterFirst;
    auto [at, added] =
        paths_.try_emplace({graph_.type(to), graph_[from].placement, graph_[to].placement, order});
    if (!added) return &at->second;
    std::span<const Dim> dims = graph_.types().dims(graph_.type(to));
    Result<Steps> steps = PlanRedistribution(graph_.placements()[graph_[from].placement],
                                             graph_.placements()[graph_[to].placement],
                                             Dims(dims.begin(), dims.end()), mesh_, order);
    if (!steps.ok()) {
      steps.diagnostics()[0].message =
          fmt::format("%{}: {}", graph_.name(to), steps.diagnostics()[0].message);
      return std::move(steps).failure();
    }
    at->second = *std::move(steps);
    return &at->second;
  }

  Status Cut(NodeId node) {
    HEDDLE_TRY(const Steps* steps, PathOf(node));
    ValueId at = graph_.operands(node)[0];
    if (steps->empty()) {
      rewriter_.ReplaceValue(graph_[node].first_result, at);
      rewriter_.Erase(node);
      return Done{};
    }
    const Attrs attrs = graph_.attrs(node);
    Inserter inserter(graph_, rewriter_);
    bool scaled = false;
    for (size_t s = 0; s + 1 < steps->size(); ++s) {
      at = inserter.Add(Inserter::Before(node), op::shard_redistribute,
                        graph_.name(graph_[node].first_result), {at},
                        StepAttrs(attrs, (*steps)[s], scaled), graph_.type(at),
                        graph_.placements().Intern((*steps)[s].to));
      context_.Count("steps");
    }
    if (steps->size() > 1) rewriter_.SetOperand(node, 0, at);
    AttrsId last = graph_.InternAttrs(StepAttrs(attrs, steps->back(), scaled));
    if (last != graph_[node].attrs) rewriter_.SetAttrs(node, last);
    return Done{};
  }

  // Every reduction averages; only the first applies a factor. As in FSDP2, a factor of one over
  // the number of scattering ranks becomes their average.
  Attrs StepAttrs(const Attrs& attrs, const RedistributionStep& step, bool& scaled) const {
    bool reduces = step.kind && Reduces(*step.kind);
    Attrs out;
    for (const Attr& attr : attrs.list) {
      if (attr.name == "average" && !reduces) continue;
      if (attr.name == "scale" && (!reduces || scaled)) continue;
      bool average = attr.name == "scale" && step.kind == CollectiveKind::kReduceScatter &&
                     SameValue(attr.value, 1.0 / static_cast<double>(mesh_.Size(step.over)));
      out.list.push_back(average ? Attr{"average", true} : attr);
    }
    scaled |= reduces;
    return out;
  }

  Graph& graph_;
  const Mesh& mesh_;
  const LowerOptions& options_;
  PassContext& context_;
  Rewriter rewriter_;
  std::map<std::tuple<TypeId, PlacementId, PlacementId, ReduceOrder>, Steps> paths_;
};

Result<Changed> Lower(Module& module, const LowerOptions& options, PassContext& context) {
  Changed changed = Changed::kNo;
  for (Graph& graph : module.graphs) {
    HEDDLE_TRY(Changed one, Lowering(graph, module.mesh, options, context).Run());
    changed = changed | one;
  }
  return changed;
}

constexpr OptionDef kLowerOptions[] = {
    Option<&LowerOptions::reduce_first>("reduce_first",
                                        "reduce gradients over replicating axes before scattering "
                                        "them, like DTensor; FSDP2 scatters first")};
constexpr std::string_view kLowerStats[] = {"steps"};

}  // namespace

HEDDLE_DEFINE_PASS(lower){
    .name = "lower",
    .summary = "Divides redistributions into steps of one collective each",
    .run = Run<Lower>,
    .make_options = Make<LowerOptions>,
    .options = kLowerOptions,
    .any_view = false,
    .needs = View::kGlobal,
    .stats = kLowerStats,
};

}  // namespace heddle::compile
