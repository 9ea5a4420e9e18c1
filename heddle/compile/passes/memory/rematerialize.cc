// rematerialize: recomputes marked values in backward.
//
//  fwd:                                                          fwd:
//   %a  = aten.exp(%x)  keep=prefer_recompute                     (the same)
//   %b  = aten.sin(%a)  keep=prefer_recompute                    bwd:
//  bwd:                                              becomes      %a_1 = aten.exp(%x)
//   %da = aten.mul.Tensor(%dy, %b)                                %b_1 = aten.sin(%a_1)
//                                                                 %da = aten.mul.Tensor(%dy, %b_1)
//
// One walk in execution order. Before the first node after forward that reads a marked value, the
// marked nodes that produce it are copied, each node once, in their order. A wait is copied with
// its launch. If a value cannot be recomputed, it is kept with a remark if it is marked
// `prefer_recompute`, and is an error if it is marked `must_recompute`.
#include <algorithm>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/fsdp/backward_copies.h"
#include "heddle/compile/passes/memory/recompute.h"

namespace heddle::compile {
namespace {

class Rematerializer {
 public:
  Rematerializer(Graph& graph, PassContext& context)
      : graph_(graph),
        context_(context),
        rewriter_(graph),
        copies_(graph, rewriter_, [this](ValueId v) { return Recomputes(v); }) {}

  Result<Changed> Run() { return rewriter_.Finish(Walk()); }

 private:
  Status Walk() {
    HEDDLE_RETURN_IF_ERROR(CheckMarks(graph_));
    size_t count = graph_.node_count();
    for (uint32_t n = 0; n < count; ++n) {
      NodeId node{n};
      if (graph_[node].phase == Phase::kForward) continue;
      for (size_t i = 0; i < graph_.operands(node).size(); ++i) {
        ValueId v = graph_.operands(node)[i];
        if (!v) continue;
        HEDDLE_RETURN_IF_ERROR(CopyBefore(node, v));
        if (ValueId here = copies_.Here(v); here != v) rewriter_.SetOperand(node, i, here);
      }
    }
    return Done{};
  }

  bool Recomputes(ValueId v) {
    NodeId producer = graph_[v].producer;
    if (graph_[producer].phase != Phase::kForward || !AsksToRecompute(graph_[v].keep)) return false;
    if (CanRecompute(graph_, producer)) return true;
    Kept(v, fmt::format("{} cannot be repeated with the same result", graph_.op(producer).name()));
    return false;
  }

  void Kept(ValueId v, const std::string& why) {
    context_.Count("kept");
    context_.AddRemark(graph_, v, RemarkKind::kNotRecomputed, "kept for backward: {}", why);
  }

  Status CopyBefore(NodeId node, ValueId v) {
    HEDDLE_TRY(NodeId taker, copies_.CopyBefore(node, v));
    if (taker) {
      std::string_view update = graph_.name(graph_[taker].first_result);
      if (graph_[v].keep == Keep::kMustRecompute)
        return Error(Diag::kBadKeep,
                     "`%{}` is marked must_recompute and `%{}` reads it, but the earlier update "
                     "`%{}` has overwritten its inputs",
                     graph_.name(v), graph_.name(graph_[node].first_result), update);
      copies_.Keep(v);
      Kept(v, fmt::format("the update `%{}` has overwritten its inputs", update));
    }
    for (const auto& [original, copy] : copies_.TakeCopies()) {
      // The copy is where it is needed, so no decision is left.
      for (ValueId result : graph_.results(copy)) rewriter_.SetKeep(result, Keep::kDefault);
      context_.Count("copies");
      if (IsLaunch(graph_, original)) context_.Count("launches");
    }
    return Done{};
  }

  Graph& graph_;
  PassContext& context_;
  Rewriter rewriter_;
  BackwardCopies copies_;
};

Result<Changed> Rematerialize(Graph& graph, PassContext& context) {
  return Rematerializer(graph, context).Run();
}

constexpr std::string_view kRematerializeStats[] = {"copies", "launches", "kept"};

}  // namespace

HEDDLE_DEFINE_PASS(rematerialize){
    .name = "rematerialize",
    .summary = "Recomputes marked values in backward",
    .run = Run<Rematerialize>,
    .stats = kRematerializeStats,
};

}  // namespace heddle::compile
