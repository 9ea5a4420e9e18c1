// chunk-tokens: divides the tokens of blocks with experts into parts (token_region.h), so that rows
// of one part travel to experts and back while another part computes.
//
//   route, dispatch, experts, combine              in sequence: compute is idle twice
//
//   route 0 | dispatch 0 | experts 0  | combine 0  in two parts: routing, attention and shared
//      experts
//           | route 1    | dispatch 1 | experts 1  of part 1 overlap dispatch 0, experts 0 overlap
//                                                  dispatch 1, and experts 1 overlap combine 0
//
// 1. Each forward dispatch belongs to a mixture; TokenRegion finds the surrounding nodes that can
// run in parts.
// 2. RegionWriter writes each of these nodes once per part. Gradients of weights are sums of parts,
// added in another order than in the whole.
// 3. OrderOfChunks lets parts take turns, using the times of a cluster.
#include "heddle/compile/manager/pass.h"
#include "heddle/compile/passes/chunks/chunk_order.h"
#include "heddle/compile/passes/chunks/region_writer.h"
#include "heddle/compile/passes/tokens/token_region.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/sim/explain/movable.h"
#include "heddle/price/sim/simulate.h"

namespace heddle::compile {
namespace {

struct ChunkTokensOptions {
  int64_t parts = 2;
};

ChunkThreads ThreadsOf(const Graph& graph, const RegionWriter& writer, int64_t parts) {
  ChunkThreads threads{.chunks = static_cast<uint32_t>(parts),
                       .chunk_of = std::vector<uint32_t>(graph.node_count(), kNoChunk),
                       .floats = price::FindMovable(graph),
                       .fills = std::vector<bool>(graph.node_count())};
  for (const std::string& name : writer.moves()) {
    NodeId node = graph[graph.FindValue(name)].producer;
    threads.floats[node.index()] = true;
    threads.fills[node.index()] = graph[node].op != op::slice_Tensor;
  }
  for (const PieceCopy& copy : writer.copies()) {
    NodeId node = graph[graph.FindValue(copy.name)].producer;
    threads.floats[node.index()] = false;
    threads.chunk_of[node.index()] = static_cast<uint32_t>(copy.piece);
  }
  return threads;
}

Result<Changed> ChunkGraph(Module& module, Graph& graph, const ChunkTokensOptions& options,
                           const price::CostModel& model, PassContext& context) {
  Uses uses(graph);
  CutRules rules(graph, module.mesh, options.parts);
  TokenRegion region(graph, uses, rules);
  for (const auto& [node, why] : region.refusals())
    context.AddRemark(graph, graph[node].first_result, RemarkKind::kNotInParts, "{}", why);
  if (region.mixtures() == 0) {
    if (region.refusals().empty())
      context.AddRemark(graph, {}, RemarkKind::kNoEffect,
                        "no rows are sent to experts of other ranks");
    return Changed::kNo;
  }
  context.Count("mixtures", static_cast<int64_t>(region.mixtures()));
  RegionWriter writer(graph, module.mesh, region);
  HEDDLE_RETURN_IF_ERROR(writer.Run());
  HEDDLE_TRY(price::GraphCosts costs, model.Price(module, graph));
  price::SimGraph sim(graph, costs, {});
  std::vector<NodeId> order = OrderOfChunks(graph, sim, ThreadsOf(graph, writer, options.parts));
  Rewriter rewriter(graph);
  rewriter.Reorder(order);
  rewriter.Commit();
  return Changed::kYes;
}

Result<Changed> ChunkTokens(Module& module, const ChunkTokensOptions& options,
                            PassContext& context) {
  if (options.parts < 2)
    return Error(Diag::kPassOption, "`parts` is {}; expected at least 2", options.parts);
  const price::CostModel& model = context.costs();
  Changed changed = Changed::kNo;
  for (Graph& graph : module.graphs) {
    HEDDLE_TRY(Changed one, ChunkGraph(module, graph, options, model, context));
    changed = changed | one;
  }
  return changed;
}

constexpr OptionDef kChunkTokensOptions[] = {
    Option<&ChunkTokensOptions::parts>("parts", "number of parts of the tokens")};
constexpr std::string_view kChunkTokensStats[] = {"mixtures"};

}  // namespace

HEDDLE_DEFINE_PASS(chunk_tokens){
    .name = "chunk-tokens",
    .summary = "Divides the tokens of blocks with shared experts into parts that overlap",
    .run = Run<ChunkTokens>,
    .make_options = Make<ChunkTokensOptions>,
    .options = kChunkTokensOptions,
    .any_view = false,
    .needs = View::kLocal,
    .numerics = Numerics::kRounding,
    .reorders_launches = true,
    .prices = true,
    .stats = kChunkTokensStats,
};

}  // namespace heddle::compile
