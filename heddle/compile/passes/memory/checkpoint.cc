// checkpoint: marks values of forward that are kept for backward, and values that are recomputed.
//
//   %h = aten.mm(%x, %w)     : bf16[8,16] @layers.0               %h = ...  keep=must_save
//   %a = aten.silu(%h)       : bf16[8,16] @layers.0    becomes    %a = ...  keep=prefer_recompute
//  bwd:                                                          bwd:
//   %dw = aten.mm(%dy, %a)   : bf16[8,16] @layers.0               (the same)
//
// Walks back from the operands of nodes after forward. The walk ends at kept values. Recomputing a
// value requires its operands, so the pass decides about them, too. Existing marks stay. Parameters
// and weights derived from them are left to `reshard-after-forward`. `rematerialize` applies the
// marks.
#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/memory/policy.h"
#include "heddle/compile/passes/memory/recompute.h"
#include "heddle/core/base/text.h"

namespace heddle::compile {
namespace {

struct CheckpointOptions {
  std::string policy = "selective";
  std::string kept = "must_save";
};

class Marker {
 public:
  Marker(Graph& graph, const CheckpointPolicy& policy, Keep kept, PassContext& context)
      : graph_(graph),
        kept_(kept),
        context_(context),
        weights_(graph),
        blocks_(graph, policy),
        seen_(graph.value_count()),
        rewriter_(graph) {
    if (policy.has(CheckpointPolicy::Kind::kMinCut)) cut_ = CutDecisions(graph, weights_);
  }

  Changed Run() {
    std::vector<bool> crosses(graph_.value_count());
    for (NodeId node : graph_.nodes()) {
      for (ValueId v : graph_.operands(node)) {
        if (!Crosses(graph_, node, v)) continue;
        crosses[v.index()] = true;
        open_.push_back(v);
      }
    }
    while (!open_.empty()) {
      ValueId v = open_.back();
      open_.pop_back();
      if (!v || seen_[v.index()]) continue;
      seen_[v.index()] = true;
      Visit(v);
    }
    for (ValueId v : graph_.values()) {
      if (graph_[v].keep != Keep::kDefault && !seen_[v.index()] && !crosses[v.index()])
        context_.AddRemark(graph_, v, RemarkKind::kMarkUnused,
                           "marked {}, but backward does not read it", Name(graph_[v].keep));
    }
    return rewriter_.Commit();
  }

 private:
  void Visit(ValueId v) {
    NodeId node = graph_[v].producer;
    if (!node || weights_.is_weight(v) || graph_.types()[graph_.type(v)].async) return;
    Keep asked = graph_[v].keep;
    if (AsksToKeep(asked)) return;
    bool by_cut = blocks_.kind(v) == CheckpointPolicy::Kind::kMinCut;
    BlockDecision decision = by_cut ? cut_[v.index()] : blocks_.of(v);
    if (AsksToRecompute(asked)) decision = BlockDecision::kRecompute;
    if (decision == BlockDecision::kLeave) return;
    bool recompute = decision == BlockDecision::kRecompute && CanRecompute(graph_, node);
    if (asked == Keep::kDefault) rewriter_.SetKeep(v, recompute ? Keep::kPreferRecompute : kept_);
    context_.Count(recompute ? "recomputed" : "kept");
    if (!recompute) return;
    for (ValueId needed : NeededAgain(graph_, node)) open_.push_back(needed);
  }

  Graph& graph_;
  // The mark of values that are not recomputed.
  Keep kept_;
  PassContext& context_;
  Weights weights_;
  BlockDecisions blocks_;
  // Indexed by value; empty unless the policy is min-cut.
  std::vector<BlockDecision> cut_;
  std::vector<bool> seen_;
  std::vector<ValueId> open_;
  Rewriter rewriter_;
};

Result<Changed> Checkpoint(Graph& graph, const CheckpointOptions& options, PassContext& context) {
  HEDDLE_TRY(CheckpointPolicy policy, CheckpointPolicy::Parse(options.policy));
  HEDDLE_RETURN_IF_ERROR(CheckMarks(graph));
  if (policy.kind == CheckpointPolicy::Kind::kNone && policy.first_blocks == 0) return Changed::kNo;
  std::optional<Keep> kept = ParseKeep(options.kept);
  if (!kept || !AsksToKeep(*kept))
    return Error(Diag::kPassOption,
                 "`{}` is not a mark that keeps a value; use must_save or offload", options.kept);
  return Marker(graph, policy, *kept, context).Run();
}

constexpr OptionDef kCheckpointOptions[] = {
    Option<&CheckpointOptions::policy>(
        "policy",
        "none; full: keep only the inputs of blocks; layers:N: the same for every N-th block; "
        "selective: keep TorchTitan's list of ops; min-cut: keep the fewest bytes such that "
        "recomputation is inexpensive; full:12,selective: full for the first 12 blocks, selective "
        "for the rest"),
    Option<&CheckpointOptions::kept>("kept", "mark of kept values: must_save or offload")};
constexpr std::string_view kCheckpointStats[] = {"kept", "recomputed"};

}  // namespace

HEDDLE_DEFINE_PASS(checkpoint){
    .name = "checkpoint",
    .summary = "Marks values that are kept for backward, and values that are recomputed",
    .run = Run<Checkpoint>,
    .make_options = Make<CheckpointOptions>,
    .options = kCheckpointOptions,
    .stats = kCheckpointStats,
};

}  // namespace heddle::compile
