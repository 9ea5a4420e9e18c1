#include "heddle/report/summary.h"

#include <algorithm>

#include <nlohmann/json.hpp>

#include "heddle/core/analysis/liveness.h"
#include "heddle/core/base/text.h"
#include "heddle/core/ir/edit/call_table.h"
#include "heddle/core/ops/ops.h"
#include "heddle/price/cost/expert_skew.h"

namespace heddle {
namespace {

// How many values the text lists.
constexpr size_t kAliveInSummary = 5;

// Ranks that do the same as others do more than their share. Sums over vocabularies and the like cost a little; a batch that does
// not divide costs a lot.
std::string ComparedWithIdeal(const StepSummary& s) {
  if (s.whole_flops.value == 0 || s.ranks == 1) return "";
  double ideal = static_cast<double>(s.whole_flops.value) / static_cast<double>(s.ranks);
  double times = static_cast<double>(s.flops.value) / ideal;
  return fmt::format(", {:.2f} times its share of the whole step{}", times,
                     times > 1.5 ? "; ranks repeat what others do, see --remarks" : "");
}

}  // namespace

Bytes KeptForBackward(const Graph& graph) {
  NodeId last;
  for (NodeId id : graph.nodes()) {
    if (graph[id].phase == Phase::kForward) last = id;
  }
  Bytes kept;
  if (!last) return kept;
  Liveness liveness(graph);
  for (const Storage& storage : liveness.storages()) {
    bool made = storage.birth && storage.birth <= last && storage.space == Space::kDevice;
    if (made && (!storage.death || last < storage.death)) kept += storage.bytes;
  }
  return kept;
}

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
  // Rows that go to experts are as many as come back, on average; their bound is for memory.
  Result<std::optional<Graph>> even = price::WithExpectedRows(module.mesh, graph, {});
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

std::string FormatSummary(const StepSummary& s) {
  std::string out;
  auto line = [&](std::string_view what, const std::string& text) {
    out += fmt::format("{:<22} {}\n", what, text);
  };
  line("mesh", fmt::format("[{}], {}", Format(s.mesh), Counted(s.ranks, "rank")));
  line("parameters", WithCommas(s.parameters));
  line("each rank", "");
  line("  parameters", Format(s.param_bytes));
  line("  gradients", Format(s.grad_bytes));
  line("  optimizer state", Format(s.optimizer_bytes));
  line("  kept for backward", Format(s.activation_bytes));
  line("  peak of the step",
       fmt::format("{} at {}{}", Format(s.peak_bytes),
                   s.peak_node.empty() ? "the start" : s.peak_node,
                   s.has_optimizer ? ""
                                   : fmt::format("; with optimizer state {}",
                                                 Format(s.peak_bytes + s.optimizer_bytes))));
  line("  work", Format(s.flops) + ComparedWithIdeal(s));
  line("  nodes", WithCommas(s.nodes));

  std::string comm = FormatCollectives(s.collectives, 0);
  if (!comm.empty()) out += "\n" + comm;
  std::string alive = FormatAlive(s.alive_at_peak, kAliveInSummary, 0);
  if (!alive.empty()) out += "\n" + alive;
  return out;
}

nlohmann::ordered_json ToJson(const StepSummary& s) {
  auto mesh = nlohmann::ordered_json::object();
  for (const MeshAxis& axis : s.mesh.axes()) mesh[axis.name] = axis.size;
  return {{"parameters", s.parameters},
          {"ranks", s.ranks},
          {"mesh", mesh},
          {"param_bytes_per_rank", s.param_bytes.value},
          {"grad_bytes_per_rank", s.grad_bytes.value},
          {"optimizer_bytes_per_rank", s.optimizer_bytes.value},
          {"activation_bytes_per_rank", s.activation_bytes.value},
          {"peak_bytes", s.peak_bytes.value},
          {"peak_node", s.peak_node},
          {"flops_per_rank", s.flops.value},
          {"ideal_flops_per_rank", s.whole_flops.value / s.ranks},
          {"nodes", s.nodes},
          {"collectives", ToJson(s.collectives)}};
}

}  // namespace heddle
