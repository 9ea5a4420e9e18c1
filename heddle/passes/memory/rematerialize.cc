// rematerialize: computes again, in backward, what is marked for it.
//
//  fwd:                                                          fwd:
//   %a  = aten.exp(%x)  keep=prefer_recompute                     (the same)
//   %b  = aten.sin(%a)  keep=prefer_recompute                    bwd:
//  bwd:                                              becomes      %a_1 = aten.exp(%x)
//   %da = aten.mul.Tensor(%dy, %b)                                %b_1 = aten.sin(%a_1)
//                                                                 %da = aten.mul.Tensor(%dy, %b_1)
//
// One walk in execution order. In front of the first node behind forward that reads a marked value, everything marked that it is
// made of is copied, each node once, in its order. A wait is copied with its launch. A value that cannot be made again is kept
// with a remark if it is marked `prefer_recompute`, and is an error if it is marked `must_recompute`.
#include <algorithm>

#include "heddle/ir/storage.h"
#include "heddle/pass/pass.h"
#include "heddle/passes/memory/recompute.h"

namespace heddle {
namespace {

class Rematerializer {
 public:
  Rematerializer(Graph& graph, PassContext& context)
      : graph_(graph),
        context_(context),
        takeovers_(graph),
        copy_of_(graph.node_count()),
        is_kept_(graph.value_count()),
        rewriter_(graph) {}

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
        if (!Recomputes(v)) continue;
        HEDDLE_RETURN_IF_ERROR(CopyBefore(node, v));
        if (ValueId here = Here(v); here != v) rewriter_.SetOperand(node, i, here);
      }
    }
    return Done{};
  }

  bool Recomputes(ValueId v) {
    NodeId producer = v ? graph_[v].producer : NodeId();
    if (!producer || producer.index() >= copy_of_.size() || is_kept_[v.index()]) return false;
    if (graph_[producer].phase != Phase::kForward || !AsksToRecompute(graph_[v].keep)) return false;
    if (CanRecompute(graph_, producer)) return true;
    Keep(v, fmt::format("{} does not give the same twice", graph_.op(producer).name()));
    return false;
  }

  void Keep(ValueId v, const std::string& why) {
    is_kept_[v.index()] = true;
    context_.Count("kept");
    context_.AddRemark(graph_, v, RemarkKind::kNotRecomputed, "kept for backward: {}", why);
  }

  // What a node behind forward reads in place of `v`.
  ValueId Here(ValueId v) const {
    if (!v || is_kept_[v.index()]) return v;
    NodeId producer = graph_[v].producer;
    bool copied = producer && AsksToRecompute(graph_[v].keep) && copy_of_[producer.index()];
    return copied ? ResultOfCopy(v) : v;
  }

  ValueId ResultOfCopy(ValueId v) const {
    NodeId producer = graph_[v].producer;
    return graph_.results(
        copy_of_[producer.index()])[v.index() - graph_[producer].first_result.index()];
  }

  // What has no copy yet of all that `v` is made of.
  std::vector<NodeId> Missing(ValueId v) {
    std::vector<NodeId> missing;
    auto find = [&](NodeId node) {
      if (copy_of_[node.index()]) return false;
      // Found; the copy itself comes later.
      copy_of_[node.index()] = node;
      missing.push_back(node);
      return true;
    };
    std::vector<ValueId> open{v};
    while (!open.empty()) {
      NodeId producer = graph_[open.back()].producer;
      open.pop_back();
      if (!find(producer)) continue;
      if (NodeId launch = LaunchOf(graph_, producer)) find(launch);
      for (ValueId needed : NeededAgain(graph_, producer)) {
        if (Recomputes(needed)) open.push_back(needed);
      }
    }
    std::ranges::sort(missing);
    return missing;
  }

  Status CopyBefore(NodeId node, ValueId v) {
    std::vector<NodeId> missing = Missing(v);
    if (NodeId taker = TakenBefore(missing, node)) {
      for (NodeId original : missing) copy_of_[original.index()] = NodeId();
      std::string_view update = graph_.name(graph_[taker].first_result);
      if (graph_[v].keep == heddle::Keep::kMustRecompute)
        return Error(Diag::kBadKeep,
                     "`%{}` is marked must_recompute and `%{}` reads it, but `%{}` in front of it "
                     "has taken over what it is made of",
                     graph_.name(v), graph_.name(graph_[node].first_result), update);
      Keep(v, fmt::format("`%{}` has taken over what it is made of", update));
      return Done{};
    }
    for (NodeId original : missing) Copy(original, node);
    return Done{};
  }

  void Copy(NodeId original, NodeId node) {
    NodeId copy = rewriter_.CloneBefore(node, {&original, 1}, graph_[node].phase)[0];
    copy_of_[original.index()] = copy;
    bool waits = static_cast<bool>(LaunchOf(graph_, original));
    for (size_t i = 0; i < graph_.operands(copy).size(); ++i) {
      ValueId read = graph_.operands(copy)[i];
      ValueId here = waits ? ResultOfCopy(read) : Here(read);
      if (here != read) rewriter_.SetOperand(copy, i, here);
    }
    // It is where it is needed: there is nothing left to decide.
    for (ValueId result : graph_.results(copy)) rewriter_.SetKeep(result, heddle::Keep::kDefault);
    context_.Count("copies");
    if (graph_.op(original).effect() == Effect::kComm && !waits) context_.Count("launches");
  }

  // The first update that would take over, before `node`, what one of the nodes reads; or none.
  NodeId TakenBefore(const std::vector<NodeId>& nodes, NodeId node) const {
    if (!takeovers_.any()) return {};
    for (NodeId id : nodes) {
      for (ValueId v : graph_.operands(id)) {
        NodeId taker = v ? takeovers_.taker(v) : NodeId();
        if (taker && taker < node) return taker;
      }
    }
    return {};
  }

  Graph& graph_;
  PassContext& context_;
  Takeovers takeovers_;
  // By node of forward: its copy behind forward.
  std::vector<NodeId> copy_of_;
  std::vector<bool> is_kept_;
  Rewriter rewriter_;
};

Result<Changed> Rematerialize(Graph& graph, PassContext& context) {
  return Rematerializer(graph, context).Run();
}

constexpr std::string_view kRematerializeStats[] = {"copies", "launches", "kept"};

}  // namespace

HEDDLE_DEFINE_PASS(rematerialize){
    .name = "rematerialize",
    .summary = "Computes again in backward what is marked for it",
    .run = Run<Rematerialize>,
    .stats = kRematerializeStats,
};

}  // namespace heddle
