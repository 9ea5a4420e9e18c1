#include "heddle/price/cost/step_summary.h"

#include "heddle/core/analysis/memory.h"
#include "heddle/core/ir/edit/call_table.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/cost/expert_skew.h"

namespace heddle::price {
namespace {

Flops SumFlops(const Module& module, const Graph& graph) {
  CallTable<Flops> known;
  CallKey key;
  SymbolTable symbols = graph.types().symbols();
  Flops total;
  for (NodeId id : graph.nodes()) {
    if (graph[id].op == kOpaqueOp || graph.op(id).effect() == Effect::kComm) continue;
    key.Assign(graph, id);
    const Flops* flops = known.Find(key);
    if (flops == nullptr) {
      Types results;
      for (ValueId v : graph.results(id)) results.push_back(graph.types()[graph.type(v)]);
      OpArgs args(graph.op(id), graph.attrs(id), module.mesh, symbols,
                  OperandTypes(graph, graph.operands(id)));
      flops = &known.Add(key, InferWork(args, results).flops);
    }
    total += *flops;
  }
  return total;
}

}  // namespace

Flops TotalFlops(const Module& module, const Graph& graph) {
  // On average, an expert receives as many rows as it returns. The bound is only for memory.
  Result<std::optional<Graph>> even = WithExpectedRows(module.mesh, graph, {});
  return SumFlops(module, even.ok() && *even ? **even : graph);
}

StepSummary Summarize(const Module& module, const Graph& graph, Flops whole_flops) {
  GraphStats stats = ComputeStats(module, graph);
  StepSummary out;
  out.mesh = module.mesh;
  out.ranks = module.mesh.ranks();
  out.parameters = stats.parameters;
  out.peak_bytes = stats.peak_bytes;
  out.peak_node = stats.peak_node;
  out.alive_at_peak = std::move(stats.alive_at_peak);
  out.collectives = std::move(stats.collectives);
  out.nodes = stats.nodes;
  Bytes state;
  for (const Input& input : graph.inputs()) {
    Bytes bytes = graph.types().bytes(graph.type(input.value));
    if (input.role == InputRole::kParam) out.param_bytes += bytes;
    if (input.role == InputRole::kOpt) state += bytes;
    out.has_optimizer |= input.role == InputRole::kOpt;
  }
  for (const Output& output : graph.outputs()) {
    if (output.role == OutputRole::kGrad)
      out.grad_bytes += graph.types().bytes(graph.type(output.value));
  }
  out.optimizer_bytes = out.has_optimizer ? state : out.param_bytes * 2;
  out.activation_bytes = KeptForBackward(graph);
  out.flops = TotalFlops(module, graph);
  out.whole_flops = whole_flops;
  return out;
}

}  // namespace heddle::price
