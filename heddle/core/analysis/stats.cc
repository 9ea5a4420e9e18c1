#include "heddle/core/analysis/stats.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "heddle/core/analysis/launch.h"
#include "heddle/core/analysis/memory.h"
#include "heddle/core/ir/text/print.h"
#include "heddle/core/ops/collectives.h"
#include "heddle/core/ops/ops.h"

namespace heddle {
namespace {

int64_t Elements(const Graph& graph, const Input& input) {
  return graph.types().elements_bound(input.global.type ? input.global.type
                                                        : graph.type(input.value));
}

Bytes BytesOf(const Graph& graph, ValueId v) { return graph.types().bytes(graph.type(v)); }

// Every rank sends each other rank a piece of the same length: the longest piece of all ranks.
Bytes PaddedExchange(const Module& module, const Graph& graph, NodeId id) {
  const TypeTable& types = graph.types();
  const Attrs& attrs = graph.attrs(id);
  int64_t ranks = module.mesh.Size(std::get<Axes>(*attrs.Find("over")));
  Bytes sum;
  for (size_t i = 0; i < graph.operands(id).size(); ++i) {
    ValueId v = graph.operands(id)[i];
    int64_t cut = EachInt(*attrs.Find("split_dim"), i);
    std::span<const Dim> dims = types.dims(graph.type(v));
    size_t dim = static_cast<size_t>(cut < 0 ? cut + static_cast<int64_t>(dims.size()) : cut);
    int64_t size = types.symbols().Bound(dims[dim]);
    int64_t piece = (size + ranks - 1) / ranks;
    if (size > 0) sum += {types.bytes(graph.type(v)).value / size * piece * ranks};
  }
  return sum;
}

// A dispatch or combine transfers a rank's actual rows, not the receive buffer's capacity.
Bytes RowBytes(const Graph& graph, NodeId id) {
  return std::min(BytesOf(graph, graph.operands(id)[0]), BytesOf(graph, graph[id].first_result));
}

// The bytes of a launch if every rank's part has the length of the longest part.
Bytes WireBytes(const Module& module, const Graph& graph, NodeId id) {
  OpId op = graph[id].op;
  if (MovesRows(op)) return RowBytes(graph, id);
  Bytes in;
  Bytes out;
  for (ValueId v : graph.operands(id)) in += BytesOf(graph, v);
  for (ValueId v : graph.results(id)) out += BytesOf(graph, v);
  const AttrValue* over = graph.attrs(id).Find("over");
  int64_t ranks = over != nullptr ? module.mesh.Size(std::get<Axes>(*over)) : 1;
  if (op == op::comm_all_gather) return std::max(in * ranks, out);
  if (op == op::comm_reduce_scatter) return std::max(in, out * ranks);
  return op == op::comm_all_to_all ? PaddedExchange(module, graph, id) : std::max(in, out);
}

}  // namespace

std::vector<CollectiveStats> CountCollectives(const Module& module, const Graph& graph) {
  // Sorted by phase first, so that a table reads in the order of execution.
  std::map<std::tuple<Phase, std::string, std::string, std::string>, CollectiveStats> groups;
  for (NodeId id : graph.nodes()) {
    if (!IsLaunch(graph, id)) continue;
    const Attrs& attrs = graph.attrs(id);
    std::string kind(graph.op(id).name());
    kind = kind.substr(kind.find('.') + 1);
    const AttrValue* over = attrs.Find("over");
    const AttrValue* why = attrs.Find("why");
    std::string over_text = over != nullptr ? Format(module.mesh, std::get<Axes>(*over)) : "";
    std::string why_text = why != nullptr ? std::string(Name(std::get<Why>(*why))) : "";
    CollectiveStats& stats = groups[{graph[id].phase, kind, over_text, why_text}];
    stats.kind = kind;
    stats.over = over_text;
    stats.why = why_text;
    stats.phase = Name(graph[id].phase);
    ++stats.count;
    Bytes in;
    Bytes out;
    for (ValueId v : graph.operands(id)) in += BytesOf(graph, v);
    for (ValueId v : graph.results(id)) out += BytesOf(graph, v);
    stats.operands += static_cast<int64_t>(graph.operands(id).size());
    stats.bytes += MovesRows(graph[id].op) ? RowBytes(graph, id) : std::max(in, out);
    stats.wire_bytes += WireBytes(module, graph, id);
  }
  std::vector<CollectiveStats> list;
  for (auto& [key, stats] : groups) list.push_back(std::move(stats));
  return list;
}

GraphStats ComputeStats(const Module& module, const Graph& graph) {
  GraphStats stats;
  stats.name = graph.name();
  stats.nodes = static_cast<int64_t>(graph.node_count());
  std::array<int64_t, 3> by_phase{};
  for (NodeId id : graph.nodes()) {
    ++by_phase[static_cast<size_t>(graph[id].phase)];
    bool opaque = graph[id].op == kOpaqueOp;
    std::string name(opaque ? std::string_view(graph.attrs(id).opaque_op) : graph.op(id).name());
    if (opaque) ++stats.opaque[name];
    ++stats.ops[std::move(name)];
  }
  for (Phase phase : {Phase::kForward, Phase::kBackward, Phase::kOptimizer}) {
    int64_t count = by_phase[static_cast<size_t>(phase)];
    if (count > 0) stats.nodes_by_phase.emplace_back(Name(phase), count);
  }
  stats.collectives = CountCollectives(module, graph);
  for (const Input& input : graph.inputs()) {
    if (input.role != InputRole::kParam) continue;
    ++stats.parameter_tensors;
    stats.parameters = (Bytes{stats.parameters} + Bytes{Elements(graph, input)}).value;
  }
  Liveness liveness(graph);
  MemoryTimeline memory = ComputeMemoryTimeline(graph, liveness);
  stats.input_bytes = memory.inputs;
  for (const Storage& storage : liveness.storages()) {
    if (!storage.death && storage.space == Space::kDevice) stats.end_bytes += storage.bytes;
  }
  stats.peak_bytes = memory.peak;
  if (memory.peak_node) {
    NodeId id = memory.peak_node;
    stats.peak_node = graph[id].result_count > 0
                          ? "%" + std::string(graph.name(graph[id].first_result))
                          : std::string(graph.op(id).name());
  }
  for (StorageId id : memory.alive_at_peak) {
    const Storage& storage = liveness.storages()[id];
    stats.alive_at_peak.push_back(
        {"%" + std::string(graph.name(storage.value)),
         PrintType(module, graph, graph.type(storage.value), graph[storage.value].placement),
         storage.bytes});
  }
  return stats;
}

}  // namespace heddle
