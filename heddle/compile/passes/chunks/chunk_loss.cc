// chunk-loss: computes scores, loss and their gradients for some rows at a time, so that the scores
// of all rows never exist at the same time.
//
//  fwd:
//   %s = aten.mm(%x, %w)                         : f32[16,48]
//   %p = aten._log_softmax(%s)
//   %l, %n = aten.nll_loss_forward(%p, %labels)
//  bwd:
//   %dp = aten.nll_loss_backward(%d, %p, %labels, %n)
//   %ds = aten._log_softmax_backward_data(%dp, %p)
//   %dx = aten.mm(%ds, %wt)
//
// becomes
//
//  fwd:
//   %x_0 = aten.slice.Tensor(%x, dim=0, start=0, end=8)
//   %s_0 = aten.mm(%x_0, %w)            keep=must_recompute
//   %p_0 = aten._log_softmax(%s_0)      keep=must_recompute
//   %l_0, %n_0 = aten.nll_loss_forward(%p_0, %labels_0)
//   ... the next rows; %l = aten.add.Tensor(%l_0, %l_1)
//  bwd:
//   the same rows in turn; rows of %dx are concatenated, gradients of weights are added
//
// A later `rematerialize` recomputes the scores in backward, which costs one more matrix product.
// Losses and gradients of weights are sums of partial sums in f32, and round differently.
#include <algorithm>
#include <optional>

#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/chunks/loss_region.h"
#include "heddle/compile/passes/chunks/region_writer.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ops/families.h"
#include "heddle/core/ops/ops.h"

namespace heddle::compile {
namespace {

struct ChunkLossOptions {
  int64_t rows = 1024;
};

// Moves views and layouts that backward reads before it. Returns whether any moved, which
// invalidates ids of the graph. Nullopt if an operand cannot be computed early enough.
std::optional<bool> BringOperands(Graph& graph, const LossRegion& region) {
  if (region.backward().empty()) return false;
  const NodeId anchor = region.backward().front();
  std::vector<bool> moves(graph.node_count());
  bool any = false;
  auto bring = [&](auto& self, NodeId node) -> bool {
    if (!node || node < anchor || moves[node.index()]) return true;
    const Op& op = graph.op(node);
    if (region.has(node) || (op.effect() != Effect::kView && !IsMove(op))) return false;
    any = moves[node.index()] = true;
    return std::ranges::all_of(graph.operands(node),
                               [&](ValueId v) { return !v || self(self, graph[v].producer); });
  };
  for (NodeId node : region.backward()) {
    for (ValueId v : graph.operands(node)) {
      NodeId producer = v ? graph[v].producer : NodeId();
      if (producer && !region.has(producer) && !bring(bring, producer)) return std::nullopt;
    }
  }
  if (!any) return false;
  std::vector<NodeId> order;
  for (NodeId node : graph.nodes()) {
    if (node < anchor || moves[node.index()]) order.push_back(node);
  }
  for (NodeId node : graph.nodes()) {
    if (node >= anchor && !moves[node.index()]) order.push_back(node);
  }
  Rewriter rewriter(graph);
  rewriter.Reorder(order);
  rewriter.Commit();
  return true;
}

Result<Changed> ChunkOne(Graph& graph, const std::string& loss, const ChunkLossOptions& options,
                         PassContext& context) {
  auto decline = [&](std::string_view why) {
    context.AddRemark(graph, graph.FindValue(loss), RemarkKind::kNoEffect,
                      "the loss is not split by rows: {}", why);
    return Changed::kNo;
  };
  for (;;) {
    const Uses uses(graph);
    const NodeId node = graph[graph.FindValue(loss)].producer;
    const Dims& dims = graph.types()[graph.type(graph.operands(node)[0])].dims;
    const int64_t rows = dims.empty() || IsSymbol(dims[0]) ? 1 : dims[0];
    CutRules rules(graph, context.mesh(), (rows + options.rows - 1) / options.rows);
    LossRegion region(graph, uses, rules, node, options.rows);
    if (!region.why_not().empty()) return decline(region.why_not());
    if (rows <= options.rows) return decline(fmt::format("it has {}", Counted(rows, "row")));
    std::optional<bool> moved = BringOperands(graph, region);
    if (!moved) return decline("backward computes its operands too late");
    if (*moved) continue;
    HEDDLE_RETURN_IF_ERROR(RegionWriter(graph, context.mesh(), region).Run());
    context.Count("losses");
    context.Count("chunks", region.pieces());
    return Changed::kYes;
  }
}

Result<Changed> ChunkLoss(Graph& graph, const ChunkLossOptions& options, PassContext& context) {
  if (options.rows < 1)
    return Error(Diag::kPassOption, "`rows` is {}; expected at least 1", options.rows);
  std::vector<std::string> losses;
  for (NodeId id : graph.nodes()) {
    if (graph[id].op == op::nll_loss_forward && graph[id].phase == Phase::kForward)
      losses.emplace_back(graph.name(graph[id].first_result));
  }
  Changed changed = Changed::kNo;
  for (const std::string& loss : losses) {
    HEDDLE_TRY(Changed one, ChunkOne(graph, loss, options, context));
    changed = changed | one;
  }
  return changed;
}

constexpr OptionDef kChunkLossOptions[] = {
    Option<&ChunkLossOptions::rows>("rows", "rows of a rank that are computed at a time")};
constexpr std::string_view kChunkLossStats[] = {"losses", "chunks"};

}  // namespace

HEDDLE_DEFINE_PASS(chunk_loss){
    .name = "chunk-loss",
    .summary = "Computes scores, loss and their gradients for some rows at a time",
    .run = Run<ChunkLoss>,
    .make_options = Make<ChunkLossOptions>,
    .options = kChunkLossOptions,
    .any_view = false,
    .needs = View::kLocal,
    .numerics = Numerics::kRounding,
    .stats = kChunkLossStats,
};

}  // namespace heddle::compile
